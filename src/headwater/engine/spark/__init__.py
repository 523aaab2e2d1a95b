"""Spark: start and stop, jobs, sessions and tasks. The only place that touches `sparkContext`.

`machine` Java and jars · `conf` its configuration · `session` start and stop · `launch` cancelling a start ·
`jobs` pools, cancelling, shares · `sessions` one per statement · `task` a Python function as a job · `workers`
Spark's Python processes · `archive`, `setup` one-time steps
In: settings, functions. Out: sessions and the results of jobs. Guarantees: a cancelled statement's jobs end; scans use
at most half of the slots. Never: an own idea of what to read or write.
"""
