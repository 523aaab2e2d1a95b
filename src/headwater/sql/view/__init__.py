"""Views in SQL: materialized ones, whose rows are stored, and plain ones, which are queries with a name.

In: statements about views. Out: views in meta, which the server fills and refreshes; listings.
Guarantees: a view is analysed by Spark before it is stored, so that a stored one can be computed.
Never: rows; the engine computes them.

`parse` their syntax · `names` one namespace with tables, `known` what is in it · `analyse` asks Spark, `text` a query
as it is stored, `define` stores it · `drop` with what depends on it · `control` options, pause, refresh · `listing`,
`explain` what there is, as `rows`
"""
