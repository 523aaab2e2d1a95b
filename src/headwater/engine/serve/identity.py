"""Which lake a meta describes: both carry the same id, so that no server ever cleans up another's lake."""

from __future__ import annotations

import contextlib
import uuid

from headwater.engine.commit import clean
from headwater.engine.home import Home
from headwater.errors import MachineError
from headwater.meta import lake
from headwater.ownership import lease
from headwater.rundir import LAKE


def check_lake(home: Home) -> None:
    """Raises unless this meta describes this lake; gives a new lake its id.

    To a cleaner with another meta, the whole lake would be the files of dropped tables. The lake gets its id before
    meta does: a meta with an id thus has a lake, and a crash in between leaves a lake that is empty, or that belongs
    to a meta of an earlier version, which had no ids.
    """
    with home.meta.read() as c:
        known = lake.known(c)
        unused = not lease.ever_acquired(c)
    found = _found(home)
    if known is None:
        if unused and any(home.storage.folders(folder) for folder in clean.FOLDERS):
            raise _foreign(home, "a lake, but its meta is new: meta.db was lost, or it belongs to another meta")
        if found is None:
            _create(home)
            found = _found(home)
        with home.meta.write() as c:
            known = lake.describe(c, found)
    if found != known:
        raise _foreign(home, "another lake than its meta describes" if found else f"no {LAKE}: its lake was removed")


def _found(home: Home) -> str | None:
    try:
        return home.storage.read(LAKE).decode().strip()
    except FileNotFoundError:
        return None


def _create(home: Home) -> None:
    """Gives the lake an id, unless another server was first."""
    with contextlib.suppress(FileExistsError), home.storage.create(LAKE) as file:
        file.write(f"{uuid.uuid4()}\n".encode())


def _foreign(home: Home, has: str) -> MachineError:
    return MachineError(
        "home.foreign",
        f"{home.path} has {has}",
        "Restore meta.db and the lake from one backup, or name the lake's own meta (--config, --set meta.url=…); "
        "to start over, choose another home.",
    )
