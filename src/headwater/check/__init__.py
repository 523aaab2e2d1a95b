"""Check: proves that the lake equals the upstream, at one cut, while everything runs.

In: a relation at an index, the upstream at a cut. Out: the number of rows of each, and the keys that differ.
Guarantees: compares every value of every row; memory does not depend on the table; takes no lock that blocks anybody.
Never: writes to the upstream or the lake; compares different moments of the two.

`digest` rows to checksums, with `kernels` · `compare` two digests, then the keys behind a difference · `verify` one
relation at one cut · `tables` all tables of a home · `views` views against their queries
"""
