"""Fills tables: Begin, the plan, and the scan of each span.

`backfill` the loop that takes tables from defined to live · `planner` spans into meta · `scanner` one span, in a Spark
task or in this process
In: defined tables. Out: spans in meta with their scanned files, which `engine.commit` covers.
Guarantees: after a crash at most the spans in flight are read again. Never: writes to a base.
"""
