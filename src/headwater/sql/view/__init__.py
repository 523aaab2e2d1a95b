"""Views in SQL: materialized ones, whose rows are stored, and plain ones, which are queries with a name.

In: statements about views. Out: views in meta, which the server fills and refreshes; listings.
Guarantees: a view is analysed by Spark before it is stored, so that a stored one can be computed.
Never: rows; the engine computes them.

`parse` their syntax
"""
