"""MySQL and MariaDB as a source; MariaDB is detected.

The seam's own names are at the top: `upstream` definitions · `log`, `frame` the log · `reach` scans and cuts · `begin`,
`resume`, `server`, `options`. Behind it: `client` the wire · `binlog` its events · `ddl` its statements ·
`scan` spans · `catalog` tables
In: a connection's options and secrets. Out: batches of the binlog, rows of spans with the position up to which they
saw everything. Guarantees: every committed change to a followed table is in the log or in its first scan. Never: writes
to a user's table, or decodes a value.
"""
