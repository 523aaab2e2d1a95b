"""Scans: short transactions that read spans and write down what they saw, and cuts that can be compared.

`read_spans` the transaction · `low` how far everything is visible · `keyset`, `extent`, `filter` spans as SQL · `cut`
"""
