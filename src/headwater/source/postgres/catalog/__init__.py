"""The upstream's catalog: tables, columns, keys, and what happens to them without a trace in the log.

`catalog` the queries · `types` a column's type · `checks` whether a server and a table can be followed · `watch` what
the log does not show · `findings` what that means for a table
In: a session. Out: tables as values, findings, or an error that says what to change. Never: changes anything upstream.
"""
