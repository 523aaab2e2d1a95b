"""MySQL's and MariaDB's values: binlog row images and result rows → lake values. `decode.dialects` reads its functions.

`types` is the type table, `evolve` says which type changes can be followed. `binlog` finds the values in row
images, `logged` turns them into Arrow; `charsets`, `texts` and `json` produce the strings. `resultset` reads scans.
"""
