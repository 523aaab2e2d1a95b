"""Statements in the log: what they do to tables and rows, parsed from their words.

`statement` its settings · `lexer`, `words` its words · `effects` what it does · `alter`, `definition` each clause ·
`judge` whether a table can still be followed
In: a statement as the log has it. Out: a verdict per table. Guarantees: what is not understood counts as a change that
cannot be followed. Never: contacts the server.
"""
