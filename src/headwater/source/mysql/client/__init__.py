"""The wire client: sessions and questions, and the bytes of a dump or of a SELECT as fast as they come.

`session`, `ask` questions · `dump`, `register` the request for a binlog · `flow` its bytes, cut by `packets`, inflated
by `unpack` · `rows` of a SELECT · `charsets`, `codepoints` the servers' characters · `refusals` their errors as ours
"""
