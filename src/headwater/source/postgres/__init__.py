"""PostgreSQL 14–18 as a source: session, catalog, publication and slot, log client, scans, snapshots."""
