"""Meta: the database of all definitions and all progress.

In: the nouns of model.py. Out: the same, each read in one transaction.
Guarantees: every write is one short transaction (BEGIN IMMEDIATE on SQLite), conditional on the writer's fence if it
has an owner; several processes may use it at once. Never: a transaction that spans an upstream or Spark call; a secret
outside its one column.

`tables` the schema · `store` transactions and migrations · `connections`, `segments`, `relations`, `spans`,
`epochs`, `intents`, `runs`, `views`: functions on an open transaction, one file per noun · `lake` which lake it
describes · `changes` where a relation's changes are · `merged` segments · `settle` spans · `progress` of backfills ·
`plain_views` stored queries without rows
"""
