"""Storage: the files of a lake (segments, bases, runs) by name, whatever keeps them.

In: names and bytes. Out: bytes; addresses for Spark and delta-rs.
Promises: a created file is durable and whole, or there is none; nothing that exists is written over.
Never: a path of a machine outside this folder; anything about what is in a file.

`base` the protocol · `local` a directory of this machine
"""

from __future__ import annotations

from headwater.storage.base import Stat, Storage
from headwater.storage.local import LocalStorage

__all__ = ["LocalStorage", "Stat", "Storage"]
