"""Everything that changes the lake: covers, folds, upkeep, epochs and cleaning.

`committer` the only writer of bases · `numbers` of its commits · `epoch` the publisher · `layout` what a reader may see
· `folds` when to fold · `ahead` what folds have to catch up with · `upkeep` rewriting and merging · `claims` the
part of a changelog that is still needed · `clean` removing the rest · `sweep` files that nothing refers to
"""
