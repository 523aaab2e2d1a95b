"""Everything that changes the lake: covers, folds, upkeep, epochs and cleaning.

`committer` the only writer of bases · `filled` the end of a view's fill · `base_writer` its MERGE · `numbers` of its
commits · `epoch` the publisher · `layout` what a reader may see · `folds` when to fold · `ahead` what folds have to
catch up with · `holes` keys to scan again · `upkeep` rewriting and merging · `holds`, `claims` the part of a changelog
that is still needed · `clean` removing the rest · `sweep` files that nothing refers to
In: scanned files, overlays, definitions in meta. Out: commits to bases, epochs, fewer files.
Guarantees: a commit is an intent in meta first, and is never made twice; what a reader or a failed table needs stays.
Never: commits without the relation's lease, or removes a file that somebody can refer to.
"""
