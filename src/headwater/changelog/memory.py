"""What a framing keeps in the home: which tables are followed, how their rows were written, and bytes set aside."""

from __future__ import annotations

from headwater.meta import relations, segments
from headwater.meta.store import Meta
from headwater.model import SchemaVersion
from headwater.storage import Storage


class HomeMemory:
    """`source.frames.Memory` of one connection. What is set aside are files beside its segments."""

    def __init__(self, meta: Meta, storage: Storage, connection_id: int) -> None:
        self._meta = meta
        self._storage = storage
        self._id = connection_id
        self._dead: list[str] = []

    def followed(self) -> frozenset[int]:
        with self._meta.read() as c:
            return frozenset(r.upstream_id for r in relations.all(c, self._id))

    def version(self, upstream_id: int) -> SchemaVersion | None:
        with self._meta.read() as c:
            known = segments.schemas(c, self._id, upstream_id)
        return known[-1] if known else None

    def put(self, name: str, part: int, data: bytes) -> None:
        if not part:
            for path in self._pieces(name):
                self._storage.remove(path)
        with self._storage.create(f"{self._folder(name)}/{part:08d}.bin") as f:
            f.write(data)

    def get(self, name: str) -> bytes | None:
        pieces = self._pieces(name)
        return b"".join(self._storage.map(path).read() for path in pieces) if pieces else None

    def remove(self, name: str) -> None:
        self._dead += self._pieces(name)

    def published(self) -> None:
        """The batch is durable: what it made superfluous goes."""
        for path in self._dead:
            self._storage.remove(path)
        self._dead = []

    def _folder(self, name: str) -> str:
        return f"aside/{self._id}/{name}"

    def _pieces(self, name: str) -> list[str]:
        return sorted(self._storage.list(self._folder(name)))
