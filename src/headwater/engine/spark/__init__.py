"""Spark: its start and end, its jobs, sessions and tasks. The only place that touches `sparkContext`.

`machine` Java and jars · `conf` what the settings tell Spark · `session` start and end · `jobs` pools, cancelling,
shares · `sessions` one per statement · `task` a Python function as a job · `workers` Spark's Python processes ·
`archive`, `setup` what is done once
"""
