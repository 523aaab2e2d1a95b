"""Queries: which relations a statement reads at which epoch, who runs it, and how it is cancelled.

`read` relations at an epoch · `changes` the changelog as rows · `queries` running queries · `caller` who runs them
"""
