"""What a framing keeps in the home: which tables are followed, how their rows were written, and bytes set aside."""

from __future__ import annotations

from headwater.meta import relations, segments
from headwater.meta.store import Meta
from headwater.model import SchemaVersion
from headwater.storage import Storage


class HomeMemory:
    """`source.frames.Memory` of one connection. What is set aside are files, each named after where its batch began.

    A file of a batch that was never published must not be found by the batch that comes instead of it. A batch that
    was published has moved the position on, so what was set aside at or after the position that is resumed is dropped
    at the start; what a failed attempt of this process wrote, when the batch is framed again.
    """

    def __init__(self, meta: Meta, storage: Storage, connection_id: int, resumed: int) -> None:
        self._meta = meta
        self._storage = storage
        self._id = connection_id
        self._begun = resumed
        self._written: list[str] = []  # by the batch that is being framed
        self._dead: list[str] = []  # once it is published
        for path in storage.list(self._folder()):
            if _begun(path) >= resumed:
                storage.remove(path)

    def begin(self, position: int) -> None:
        """A batch begins, or begins again, at a position's number."""
        for path in self._written:
            self._storage.remove(path)
        self._written, self._dead, self._begun = [], [], position

    def published(self) -> None:
        """The batch is durable: what it made superfluous goes."""
        for path in self._dead:
            self._storage.remove(path)
        self._written, self._dead = [], []

    def followed(self) -> frozenset[int]:
        with self._meta.read() as c:
            return frozenset(r.upstream_id for r in relations.all(c, self._id))

    def version(self, upstream_id: int) -> SchemaVersion | None:
        with self._meta.read() as c:
            known = segments.schemas(c, self._id, upstream_id)
        return known[-1] if known else None

    def put(self, name: str, part: int, data: bytes) -> None:
        own = f"{self._folder()}/{name}/{self._begun:020d}-"
        if not part:
            for path in [p for p in self._written if p.startswith(own)]:
                self._storage.remove(path)
                self._written.remove(path)
            self._dead = [p for p in self._dead if not p.startswith(own)]
            self.remove(name)
        path = f"{own}{part:08d}.bin"
        with self._storage.create(path) as f:
            f.write(data)
        self._written.append(path)

    def get(self, name: str) -> bytes | None:
        paths = self._paths(name)
        if not paths:
            return None
        newest = max(_begun(p) for p in paths)
        return b"".join(self._storage.map(p).read() for p in paths if _begun(p) == newest)

    def remove(self, name: str) -> None:
        self._dead += self._paths(name)

    def _folder(self) -> str:
        return f"aside/{self._id}"

    def _paths(self, name: str) -> list[str]:
        return sorted(self._storage.list(f"{self._folder()}/{name}"))


def _begun(path: str) -> int:
    return int(path.rsplit("/", 1)[-1].split("-")[0])
