"""Sources: everything that talks to an upstream database. Drivers appear only here.

In: a connection's options. Out: its catalog, its log as raw messages, scans of its tables, what a scan saw.
Guarantees: no lock that blocks a reader or writer; every session uses fixed settings, so a value has one text form.
Never: decodes values, writes to the home or to meta.

The seam: `base` the log · `frames` its framing · `spans` scans and cuts · `upstream` everything else. `kinds` chooses
between `postgres` and `mysql`, `connected` by connection. What both share: `endpoint`, `options`, `names`, `keyset`,
`filter`, `refusals`, `missing`, `wakeup`
"""
