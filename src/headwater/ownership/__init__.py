"""Ownership: who may commit what, and why an earlier owner can do no harm, wherever it still runs.

In: names of what is owned, and an open transaction on meta. Out: leases and permits.
Guarantees: each acquisition gets a higher fence than the last. An owner with an older fence cannot write to meta
(`meta.store`); its commits to a base are refused by number (`engine.commit.numbers`); files of its tasks carry that
fence in their names, so the sweep finds them (`engine.commit.sweep`). The database's clock decides when a lease has
expired; an owner that could not renew in time stops by its own clock.
Never: a lock or process id of this machine (see `rundir.lock`); waiting for an earlier owner.

`names` what is owned · `lease` acquire, renew, release · `permit` the fence in file names · `under_way` files that are
being written · `strays` files that may be deleted
"""
