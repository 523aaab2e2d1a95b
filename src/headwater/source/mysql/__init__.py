"""MySQL and MariaDB as a source. MariaDB makes itself known.

At the top what the seam names: `upstream` definitions · `log`, `frame` the log · `reach` scans and cuts · `begin`,
`resume`, `server`, `options`. Behind it: `client` the wire · `binlog` its events · `ddl` its statements ·
`scan` spans · `catalog` tables
"""
