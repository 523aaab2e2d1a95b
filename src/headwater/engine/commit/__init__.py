"""What changes the lake: covers, folds, upkeep, epochs and the removal of what nobody needs.

`committer` the only writer of bases · `epoch` the publisher · `layout` what a reader may see · `folds` when to fold ·
`upkeep` rewriting and merging · `claims` what of a changelog is needed · `clean` what goes
"""
