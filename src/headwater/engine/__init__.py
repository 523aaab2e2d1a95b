"""The engine: runs captures, scans, epochs, runs and folds, and answers queries at an epoch.

In: definitions in meta. Out: relations that are read at one epoch; progress in meta.
Guarantees: streaming never waits for scanning; a crash anywhere repeats at most the spans in flight; one committer per
base. Never: `collect()` of table data; JVM internals; `sparkContext` outside `spark/`.

`fill` backfill of tables · `commit` bases, folds, epochs · `query` relations at an epoch · `status` status and metrics
· `spark` the session and its jobs · `serve` the server's loops · `home` the directory · `failures`, `guard` errors and
their retries · `live`, `results` values that pass between them
"""
