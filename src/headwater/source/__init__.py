"""Sources: everything that talks to an upstream database. Drivers appear only here.

In: a connection's options. Out: its catalog, its log as raw messages, scans of its tables, what a scan saw.
Guarantees: no lock that blocks a reader or writer; every session uses fixed settings, so a value has one text form.
Never: decodes values, writes to the home or to meta.
"""
