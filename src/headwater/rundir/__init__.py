"""The run directory: files of this machine that are not part of the lake (socket, lock, logs, SQLite, temporary files).

For now it is the home's own directory, next to the files of the lake.
In: the path of the home. Out: a directory that only its user can read, and the right to be its only server.
Never: ownership in meta (see `ownership.lease`); a file of the lake.

`files` its contents and their permissions · `lock` one server per machine, and waiting for the JVM of a killed one
"""

from __future__ import annotations

from headwater.rundir.files import (
    FILES,
    FOLDERS,
    LAKE,
    LOCK,
    META,
    SOCKET,
    missing_parts,
    private_file,
    remove_parts,
    usable_home,
)

__all__ = [
    "FILES",
    "FOLDERS",
    "LAKE",
    "LOCK",
    "META",
    "SOCKET",
    "missing_parts",
    "private_file",
    "remove_parts",
    "usable_home",
]
