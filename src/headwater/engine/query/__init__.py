"""Queries: which relations a statement reads at which epoch, who asked for it, and how it is ended.

`read` relations at an epoch · `changes` the changelog as rows · `queries` those under way · `caller` who asked
"""
