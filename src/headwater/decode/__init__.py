"""Decoding: an upstream's bytes become Arrow arrays of lake values.

In: raw changes of one table (`changes.decode_changes`), batches of a scan (`scanned.to_lake`), key texts (`literals`).
Out: Arrow in the relation's schema (`values.arrow_schema`), with a count of the values that cannot be represented.
Guarantees: a value is the same from a scan and from the log; it is exact, or NULL and counted; in a key that is an
error; text that is invalid for its type is an error, never a NULL.
Never: talks to a database, reads files, runs Python code per row.

`values` the lake's types · `dialects` chooses between `postgres` and `mysql`, each with its type table · `layout` where
values are · `column`, `text` one column · `kernels`, `kernels_bytes`, `kernels_number`, `kernels_time` are compiled
with numba under explicit signatures: `warm.compile_kernels()` fills their disk cache.
"""
