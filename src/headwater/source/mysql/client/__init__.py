"""The wire client: sessions and queries, and the bytes of a dump or of a SELECT as fast as they arrive.

`session`, `ask` queries · `dump`, `register` the request for a binlog · `flow` its bytes, split by `packets`, inflated
by `unpack` · `rows` of a SELECT · `charsets`, `codepoints` the servers' characters · `refusals` their errors as ours
In: an endpoint and a statement or a position. Out: rows and bytes, or one of our errors with a hint. Never: a value of
a row in an error.
"""
