"""The SQL surface: our own statements beside Spark's queries.

In: text. Out: statements as values (`parse`), carried out by `execute` on one home.
Promises: an error shows its place; a definition has one canonical text, so the same one again is a no-op;
Spark reads a query as it was written; a password is never in a text, a repr or a message that leaves here.
Never: a write into a relation, other than by the log.
"""
