"""The upstream's catalog: tables, columns, keys, and what happens to them without a trace in the log.

`catalog` the queries · `find` whether a table can be followed · `checks` whether a server can · `table`, `types` a
table as a value · `watch` what the log does not show
In: a session. Out: tables as values, or an error that says what to change. Never: changes anything upstream.
"""
