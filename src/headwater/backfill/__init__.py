"""Backfill: reads the history of a table span by span, and decides which changes count on top of it.

In: an upstream table, a span. Out: a plan of spans; per scan one value (what it saw, the log position it needs, files);
for any change whether it counts (`rule`), which is pure.
Guarantees: a covered span plus its counted changes equals the upstream's rows at that cut, exactly; no lock that blocks
anybody; memory independent of a span's size; file statistics that never hide a row.
Never: touches meta, commits to a base, compares positions.

`span` keys and bounds · `plan` where spans end · `read_span` one span into files · `files`, `statistics` Parquet that
hides no row · `filter` which rows are wanted · `pace` how fast · `rule` what counts
"""
