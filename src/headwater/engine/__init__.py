"""The engine: runs captures, scans, epochs, runs and folds, and answers queries at an epoch.

In: definitions in meta. Out: relations that are read at one epoch; progress in meta.
Guarantees: streaming never waits for scanning; a crash anywhere repeats at most the spans in flight; one committer per
base. Never: `collect()` of table data; JVM internals; `sparkContext` outside `spark/`.

`home` the directory · `failures`, `guard` errors and their retries · `running` queries and
their `caller` · `counters`, `live`, `results` values that pass between them · `spark` the session and its jobs ·
`query` relations at an epoch · `commit` bases, folds, epochs · `fill` backfill of tables · `view` fills and
refreshes of views · `status` status and metrics · `serve` the server's loops
"""
