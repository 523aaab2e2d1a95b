"""Fills tables: Begin, the plan of spans, the scan of each, and of keys that must be read again.

`backfill` the loop that brings tables from defined to live · `planner` spans into meta · `scanner` one span, in a
Spark task or here · `holes` keys that are read again
"""
