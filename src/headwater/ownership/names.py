"""Names of what is owned. They are built here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Kind(StrEnum):
    """What can have an owner."""

    SERVER = "server"  # epochs, cleaning, and everything without an owner of its own
    CONNECTION = "connection"  # a changelog; owned by the connection's capture
    RELATION = "relation"  # a base with its runs and spans


@dataclass(frozen=True, slots=True)
class Name:
    """Something that is owned. Its text, which meta stores, is `server`, `connection:3` or `relation:7`."""

    kind: Kind
    id: int = 0

    @classmethod
    def server(cls) -> Self:
        return cls(Kind.SERVER)

    @classmethod
    def connection(cls, id: int) -> Self:
        return cls(Kind.CONNECTION, id)

    @classmethod
    def relation(cls, id: int) -> Self:
        return cls(Kind.RELATION, id)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}" if self.id else str(self.kind)
