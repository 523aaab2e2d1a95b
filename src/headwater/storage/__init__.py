"""Storage: the files of a lake (segments, bases, runs) by name, whatever stores them.

In: names and bytes. Out: bytes; addresses for Spark and delta-rs.
Guarantees: a created file is durable and complete, or does not exist; an existing file is never overwritten.
Never: a path of a machine outside this folder; anything about a file's contents.

`base` the protocol · `local` a directory of this machine
"""

from __future__ import annotations

from headwater.storage.base import Stat, Storage
from headwater.storage.local import LocalStorage

__all__ = ["LocalStorage", "Stat", "Storage"]
