"""What the upstream keeps for a connection: a publication and a replication slot.

`publication`, `slot` each of them · `replicate` commands that wait for other transactions
In: a session and a name. Out: the publication or the slot, made or dropped. Guarantees: every step can be repeated.
Never: alters or drops what belongs to somebody else.
"""
