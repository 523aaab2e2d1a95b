"""MySQL and MariaDB as a source; MariaDB is detected.

The seam's own names are at the top: `upstream` definitions · `log`, `frame` the log · `reach` scans and cuts · `begin`,
`resume`, `server`, `options`. Behind it: `client` the wire · `binlog` its events · `ddl` its statements ·
`scan` spans · `catalog` tables
"""
