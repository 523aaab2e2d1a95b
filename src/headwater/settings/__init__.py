"""Settings: everything configurable about a home, in one table, and the values in force.

In: the command line, the environment, the home's settings file, in this order. Out: one immutable `Settings`, which
an open home carries. An unknown name or an invalid value is an error that says where it is. Nothing is read again
while a process runs.

`values` how a value is written · `places` how meta's and Spark's places are · `table` every setting · `load` the layers
"""
