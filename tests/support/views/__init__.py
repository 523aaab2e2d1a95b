"""Test material for materialized views: tables with keys, queries, and transactions that change the tables. No engine.

`material` the values and an exact model of the tables · `changes` random transactions · `tpch` TPC-H, queries in
`tpch_views` · `auction` an auction house, queries in `auction_views` · `public` small cases by topic
"""
