"""Check: proves that the lake equals the upstream, at one cut, while everything runs.

In: a relation at an index, the upstream at a cut. Out: how many rows each has, and the keys that differ.
Promises: compares every value of every row; memory that does not depend on the table; no lock that blocks anybody.
Never: writes to the upstream or to the lake; compares a moment of one with another moment of the other.

`digest` rows to checksums · `compare` two digests, then the keys behind a difference · `verify` one relation at one cut
"""
