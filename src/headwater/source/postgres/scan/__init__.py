"""Scans: short transactions that read spans and record what they saw, and comparable cuts.

`read_spans` the transaction · `snapshot` what it saw · `keyset`, `extent`, `filter` spans as SQL · `cut`
In: a table and spans of its key. Out: rows as Arrow, and their snapshot. Never: blocks a writer.
"""
