"""Meta: the database of all definitions and all progress.

In: the nouns of model.py. Out: the same, read in one transaction each.
Promises: every write is one short transaction (BEGIN IMMEDIATE on SQLite), conditional on the writer's fence where a
job owns it; several processes may use it at once. Never: a transaction that spans an upstream or Spark call; a secret
outside the one column for it.

`tables` the schema · `store` transactions and migrations · `lease` owners and fences · `connections`, `segments`,
`relations`, `spans`, `epochs`, `intents`, `runs`: functions on an open transaction, one file per noun.
"""
