"""What framing stores in the home: which tables are followed, how their rows were written, and bytes set aside."""

from __future__ import annotations

from headwater.meta import relations, segments
from headwater.meta.store import Meta
from headwater.model import SchemaVersion
from headwater.source.frames import Taken
from headwater.storage import Storage

GONE, ANEW = "gone", "anew"  # marks: everything stored by then is dead; or everything stored before then


class HomeMemory:
    """`source.frames.Memory` of one connection. Set-aside bytes are files, each named after the start of its batch.

    A file of a batch that was never published must not be found by the batch that replaces it. A published batch has
    advanced the position, so everything set aside at or after the resumed position is removed at the start; what a
    failed attempt of this process wrote is removed when the batch is framed again. What a batch makes obsolete is
    marked before it is published and removed afterwards: a crash in between leaves the mark.
    """

    def __init__(self, meta: Meta, storage: Storage, connection_id: int, resumed: int) -> None:
        self._meta = meta
        self._storage = storage
        self._id = connection_id
        self._begun = resumed
        self._written: list[str] = []  # by the batch being framed
        self._dead: list[str] = []  # once it is published
        found = list(storage.list(self._folder()))
        storage.remove(p for p in found if _begun(p) >= resumed)
        left = [p for p in found if _begun(p) < resumed]
        for mark in [p for p in left if _is_mark(p)]:
            storage.remove(p for p in left if _is_dead(p, mark))
            storage.remove([mark])

    def begin(self, position: int) -> None:
        """Starts, or restarts, a batch at a position's number."""
        self._storage.remove(self._written)
        self._written, self._dead, self._begun = [], [], position

    def published(self) -> None:
        """Called when the batch is durable: removes what it made obsolete."""
        self._storage.remove(self._dead)
        self._written, self._dead = [], []

    def followed(self) -> frozenset[int]:
        with self._meta.read() as c:
            return frozenset(r.table_origin.upstream_id for r in relations.all(c, self._id))

    def taken(self, upstream_id: int) -> tuple[Taken, ...]:
        with self._meta.read() as c:
            found = [r for r in relations.all(c, self._id) if r.table_origin.upstream_id == upstream_id]
        return tuple(Taken(r.columns, r.key) for r in found)

    def version(self, upstream_id: int) -> SchemaVersion | None:
        with self._meta.read() as c:
            known = segments.schemas(c, self._id, upstream_id)
        return known[-1] if known else None

    def put(self, name: str, part: int, data: bytes) -> None:
        own = f"{self._folder()}/{name}/{self._begun:020d}-"
        if not part:
            again = [p for p in self._written if p.startswith(own)]
            self._storage.remove(again)
            self._written = [p for p in self._written if p not in again]
            self._dead = [p for p in self._dead if not p.startswith(own)]
            self._end(name, ANEW)
        self._write(f"{own}{part:08d}.bin", data)

    def get(self, name: str) -> bytes | None:
        paths = self._paths(name)
        if not paths:
            return None
        newest = max(_begun(p) for p in paths)
        return b"".join(self._storage.read(p) for p in paths if _begun(p) == newest)

    def remove(self, name: str) -> None:
        self._end(name, GONE)

    def _end(self, name: str, mark: str) -> None:
        """Marks what is stored under the name, to be removed once the batch is published."""
        paths = self._paths(name)
        if paths:
            path = f"{self._folder()}/{name}/{self._begun:020d}-{mark}"
            self._write(path, b"")
            self._dead += [*paths, path]

    def _write(self, path: str, data: bytes) -> None:
        self._storage.remove([path])  # a mark may be set more than once in a batch
        with self._storage.create(path) as f:
            f.write(data)
        self._written.append(path)

    def _folder(self) -> str:
        return f"aside/{self._id}"

    def _paths(self, name: str) -> list[str]:
        return sorted(p for p in self._storage.list(f"{self._folder()}/{name}") if not _is_mark(p))


def _begun(path: str) -> int:
    return int(path.rsplit("/", 1)[-1].split("-")[0])


def _is_mark(path: str) -> bool:
    return path.endswith((GONE, ANEW))


def _is_dead(path: str, mark: str) -> bool:
    """Whether a published mark makes a file of its name obsolete."""
    if path.rsplit("/", 1)[0] != mark.rsplit("/", 1)[0] or _is_mark(path):
        return False
    return _begun(path) <= _begun(mark) if mark.endswith(GONE) else _begun(path) < _begun(mark)
