"""The server: everything that runs on a home, and how commands reach it.

`server` the loops · `supervisor` the captures · `pressure` pausing them · `watcher` upstream changes that the log does
not show · `journal` the server's log · `wire`, `remote` the protocol for commands
"""
