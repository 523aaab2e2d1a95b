"""Materialized views: filled from their inputs at one epoch, then moved from barrier to barrier.

In: definitions in meta, the tree of each query, relations between epochs. Out: slices in a view's
base, then one run per refresh, published with the version that it leads to.
Guarantees: a version equals the view's query over its inputs at that epoch; a refresh that dies leaves nothing but
files that nobody refers to. Never: a commit to a base outside the committer; a Spark job for a view whose inputs have
not changed.

`definition` trees of stored queries · `barriers` where views meet · `fill` slices · `refresh` one step of one view ·
`merge` runs into fewer · `anew` views that are filled from scratch · `refusal` what Spark says of a query that fails ·
`views` the loop over all of them
"""
