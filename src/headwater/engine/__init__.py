"""The engine: runs captures, scans, epochs, runs and folds, and answers queries at an epoch.

In: definitions in meta. Out: relations that are read at one epoch; progress in meta.
Promises: streaming never waits for scanning; a crash anywhere repeats at most the spans in flight; one committer per
base. Never: `collect()` of table data; JVM internals; `sparkContext` outside `spark/`.

`fill` tables are filled · `commit` bases, folds, epochs · `query` relations at an epoch · `status` where all stands ·
`spark` the session and its jobs · `serve` all of it under one lock · `home` the directory · `failures`, `guard` whose
an error is · `permit` who may write · `live`, `results` values that pass between them
"""
