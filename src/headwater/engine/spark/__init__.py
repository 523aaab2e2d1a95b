"""Spark: start and stop, jobs, sessions and tasks. The only place that touches `sparkContext`.

`machine` Java and jars · `conf` its configuration · `session` start and stop · `jobs` pools, cancelling, shares ·
`sessions` one per statement · `task` a Python function as a job · `workers` Spark's Python processes · `archive`,
`setup` one-time steps
"""
