"""Queries: which relations a statement reads at which epoch, and how old its result is.

`read` relations at an epoch · `meet` which epoch that is · `changes` the changelog as rows · `between` a relation
at an epoch, and whether changes lead to the next · `moved`, `deltas` its signed change, made once for all who need it ·
`net_changes` that as rows · `freshness` the age of results
In: names of relations. Out: DataFrames of base and overlay. Guarantees: all at one epoch, pinned while it is read.
Never: changes what a relation holds. (A long tail becomes runs on the way, if this is the owner's process.)
"""
