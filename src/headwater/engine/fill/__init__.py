"""Fills tables: Begin, the plan, the scan of each span, and rescans of single keys.

`backfill` the loop that takes tables from defined to live · `planner` spans into meta · `scanner` one span, in a Spark
task or in this process · `holes` keys to scan again
"""
