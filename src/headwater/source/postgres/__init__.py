"""PostgreSQL 14–18 as a source.

The seam's own names are at the top: `upstream` definitions · `log`, `frame` the log · `reach` scans and cuts · `begin`,
`resume`, `server`, `options`. Behind it: `client` sessions · `catalog` tables · `replication` what the upstream keeps
for us · `scan` spans
In: a connection's options and secrets. Out: batches of the log, rows of spans with the snapshot that read them.
Guarantees: every committed change to a published table is in the log or in its first scan. Never: writes to a user's
table, or decodes a value.
"""
