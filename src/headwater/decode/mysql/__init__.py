"""MySQL's and MariaDB's values: binlog row images and result rows → lake values.

`dialect` its functions under the names of `decode.dialects` · `types` the type table · `evolve` which type changes can
be followed · `binlog` finds the values in row images, `logged` turns them into Arrow · `charsets`, `texts`, `json`,
`compressed` the strings · `resultset` scans · `kernels_rows`, `kernels_resultset`, `kernels_numbers`, `kernels_text`,
`kernels_times` the compiled parts
In: bytes as the server wrote them. Out: Arrow arrays. Guarantees: the same value from log and scan. Never: asks a
server.
"""
