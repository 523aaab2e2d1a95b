"""The engine: runs captures, scans, epochs, runs and folds, and answers queries at an epoch.

In: definitions in meta. Out: relations that are read at one epoch; progress in meta.
Promises: streaming never waits for scanning; a crash anywhere repeats at most the spans in flight; one committer per
base. Never: `collect()` of table data; JVM internals; `sparkContext` outside `spark.py`.

`spark` the session · `capture` the process · `epoch` the publisher · `backfill` begin, plan, scans · `committer`
the only writer of bases · `read` relations at an epoch · `server` all of it under one lock · `crash` named points ·
`status` and `metrics` where all of it stands, with `pulse` (looked at by itself) and `counters` (counted on the way).
"""
