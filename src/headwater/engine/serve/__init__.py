"""The server: everything that runs on a home, and how commands reach it.

`server` the loops · `identity` which lake a meta describes · `supervisor` the captures · `pressure` pausing them ·
`watcher` upstream changes that the log does not show · `journal` the server's log · `wire`, `remote` the protocol for
commands
In: a home and its leases. Out: running loops, answers to commands. Guarantees: a loop that fails is retried and
reported, and stops no other. Never: two servers of one home.
"""
