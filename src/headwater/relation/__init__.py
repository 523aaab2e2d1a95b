"""Relations: what a table is at an index, and how its base catches up.

In:  decoded changes (decode/), what a scan saw (backfill/rule), a layout (meta), a base (Delta).
Out: a DataFrame of the rows at an index (read), runs of netted changes (runs), a new base version (fold).
Guarantees: a read equals the upstream's rows of the covered spans at that index; folds and adds are
idempotent; nothing else ever commits to a base.
Never: creates a Spark session, touches an upstream, or decides which layout or index is current (engine/).

`changes` slices of changes · `judge` which count · `net` the last state per key · `layers`, `runs`, `overlay` netted
files · `read`, `filter`, `keys`, `near`, `schema`, `session` rows at an index · `fold` overlay into base · `base`,
`birth` the Delta table · `commits` its log · `upkeep`, `rewrite` what it needs, and doing it
"""
