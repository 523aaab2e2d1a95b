"""The demo: an embedded PostgreSQL and MariaDB, a small shop and a writer that never stops.

In: nothing but this package and the servers' packages. Out: a summary on the terminal.
Guarantees: everything it starts ends with it and binds to loopback. Never: part of the product's data path.

`story` what it shows · `shop`, `shop_postgres`, `shop_mariadb` the business · `embedded`, `mariadb`, `server`,
`process`, `machine` the servers
"""
