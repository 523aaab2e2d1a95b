"""Views in SQL: materialized ones, whose rows are stored, and plain ones, which are queries with a name.

In: statements about views. Out: views in meta, which the server fills and refreshes; listings.
Guarantees: Spark has analysed the query of every stored view.
Never: computes rows; the engine does that.

`parse` their syntax · `names` one namespace with tables, `known` what is in it · `analyse` asks Spark, `checks` what
cannot be a view, `text` a query as it is stored, `define` stores it · `drop` with what depends on it · `control`
options, pause, refresh · `listing`, `explain` what there is, as `rows`
"""
