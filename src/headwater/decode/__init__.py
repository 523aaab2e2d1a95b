"""Decoding: bytes of an upstream become Arrow arrays of lake values.

In: raw changes of one table (`changes.decode_changes`), batches of a scan (`scanned.to_lake`), key texts (`literals`).
Out: Arrow in the relation's schema (`values.arrow_schema`), with a count of the values that could not be kept.
Promises: a value is the same from a scan and from the log; a value is kept exactly or it is NULL and counted; in a key
it is an error; text that no such type can have is an error, never a NULL.
Never: talks to a database, reads files, runs Python code per row.

`values` is the type table. `text` decodes one column of database texts. `kernels_*` are compiled with numba under
explicit signatures: `warm.compile_kernels()` fills their disk cache.
"""
