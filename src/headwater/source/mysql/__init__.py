"""MySQL and MariaDB as a source: session, catalog, checks, log client, scans. MariaDB makes itself known."""
