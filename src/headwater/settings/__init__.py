"""Settings: what may be chosen about a home, in one table, and the values that are in force.

In: the command line, the environment, the home's settings file, in this order. Out: one immutable `Settings`, which
an open home carries and hands to whoever needs it. A name that is not in the table, or a value that is not allowed, is
an error that says where it stands. Nothing here is read again while a process runs.

`values` how a value is written · `table` every setting · `load` the layers
"""
