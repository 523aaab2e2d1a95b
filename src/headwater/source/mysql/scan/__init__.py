"""Scans: short transactions that read spans and record what they saw, and comparable cuts.

`read_spans` the transaction · `low` how far everything is visible · `keyset`, `extent`, `filter` spans as SQL · `cut`
In: a table and spans of its key. Out: raw rows, and the position up to which they saw everything. Never: blocks a
writer.
"""
