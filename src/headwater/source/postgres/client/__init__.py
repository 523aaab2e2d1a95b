"""Sessions with PostgreSQL.

`session` options and fixed settings · `ask` catalog queries · `arrow` rows as Arrow · `refusals` ADBC's errors as ours
In: an endpoint and a statement. Out: rows, or one of our errors with a hint. Never: a value of a row in an error.
"""
