"""The server: everything that runs on a home, and how commands reach it.

`server` the loops · `supervisor` the captures · `watcher` what the log does not tell · `journal` the server's log ·
`wire`, `remote` the talk with commands
"""
