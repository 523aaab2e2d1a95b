"""The SQL surface: our own statements next to Spark's queries.

In: text. Out: statements as values (`parse`), run by `execute` on one home.
Guarantees: an error shows its location; a definition has one canonical text, so repeating it is a no-op; Spark reads a
query as it was written; no text, repr or message that leaves here contains a password.
Never: a write to a relation, other than through the log.

`tokens`, `cursor` words · `parse`, `create`, `options`, `read_query` their syntax · `statements` as values · `steps`
blocks · `same` equal definitions · `execute` runs one: `define`, `control`, `listing`, `run_query`, with an `outcome` ·
`view` statements about views · `apply` a file of them · `ranges`, `refusal` messages
"""
