"""PostgreSQL's values: pgoutput messages and ADBC batches → lake values.

`dialect` its functions under the names of `decode.dialects` · `types` the type table · `evolve` which type changes can
be followed · `pgoutput` finds the values in messages · `text`, `arrays` turn them into Arrow · `scanned` scans ·
`kernels_pgoutput`, `kernels_array` the compiled parts
In: texts as the server wrote them. Out: Arrow arrays. Guarantees: the same value from log and scan. Never: asks a
server.
"""
