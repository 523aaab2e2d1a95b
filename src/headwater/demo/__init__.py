"""The demo: an embedded PostgreSQL and MariaDB, a small shop and a writer that never stops.

In: nothing but this package and the packages with the servers. Out: a summary on the terminal.
Promises: everything it starts ends with it and binds to loopback. Never: used by the product's own path of data.
"""
