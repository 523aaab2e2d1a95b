"""Power losses: what a disk may hold after one, computed from a recording of everything that was done to a home.

Only synced data and directory entries are certain. Everything else is kept, dropped, torn or reordered at random, so
that code that relies on something unsynced is found out.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "recorder.c"
_HEAD = struct.Struct("<IIIIQQ")
# nobody relies on them; the last is memory-mapped, and recreated
UNSEEN = ("logs", "tmp", "server.sock", "meta.db-shm")


class Op(IntEnum):
    """What a record says; as in recorder.c."""

    CREATE = 1
    MKDIR = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC = 5
    LINK = 6
    RENAME = 7
    UNLINK = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One call that succeeded. `node` is the inode; paths are relative to the home."""

    op: Op
    node: int
    offset: int
    path: str
    other: str
    data: bytes


def compiled(folder: Path) -> Path:
    """The recorder as a library to preload; without a C compiler power losses cannot be tested, which is reported."""
    if shutil.which("cc") is None:
        if os.environ.get("HEADWATER_REQUIRE_CC"):
            pytest.fail("power losses must be tested here: there is no C compiler (cc)")
        pytest.skip("POWER LOSSES WERE NOT TESTED: there is no C compiler (cc)")
    library = folder / "recorder.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def environment(library: Path, home: Path, recording: Path) -> dict[str, str]:
    """The environment that makes a process and its children record what they do in a home."""
    return {
        "LD_PRELOAD": str(library),
        "HEADWATER_RECORD_ROOT": str(home),
        "HEADWATER_RECORD_TO": str(recording),
    }


def records(recording: Path) -> Iterator[Record]:
    with recording.open("rb") as f:
        while head := f.read(_HEAD.size):
            op, path, other, data, node, offset = _HEAD.unpack(head)
            yield Record(Op(op), node, offset, f.read(path).decode(), f.read(other).decode(), f.read(data))


@dataclass(slots=True, eq=False)
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data), or (size, None)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A directory change: the name points to the node from now on, or to nothing. A rename is two, atomically."""

    number: int
    name: str
    node: Node | None


@dataclass(slots=True, eq=False)
class Folder:
    entries: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[Entry] = field(default_factory=list)


Node = File | Folder


class Disk:
    """A home as its processes see it, and which part of it is certain: at first everything in it."""

    def __init__(self, home: Path) -> None:
        self._nodes: dict[int, Node] = {}
        self._number = 0
        self.root = self._found(home)

    def _found(self, path: Path) -> Folder:
        folder = self._nodes[path.stat().st_ino] = Folder()
        for child in path.iterdir():
            if child.is_dir():
                folder.entries[child.name] = self._found(child)
            elif child.is_file():
                data = child.read_bytes()
                file = self._nodes[child.stat().st_ino] = File(bytearray(data), bytearray(data))
                folder.entries[child.name] = file
        folder.synced = dict(folder.entries)
        return folder

    def apply(self, r: Record) -> None:
        self._number += 1
        if r.op in (Op.CREATE, Op.MKDIR):
            self._nodes[r.node] = File() if r.op is Op.CREATE else Folder()
            self._enter(r.path, self._nodes[r.node])
        elif r.op is Op.LINK:
            self._enter(r.path, self._nodes[r.node])
        elif r.op is Op.UNLINK:
            self._enter(r.path, None)
        elif r.op is Op.RENAME:
            node = self.find(r.path)
            assert node is not None, r
            self._enter(r.path, None)
            self._enter(r.other, node)
        else:
            self._change(r)

    def _change(self, r: Record) -> None:
        node = self._nodes[r.node]
        if r.op is Op.SYNC:
            if isinstance(node, File):
                for change in node.pending:
                    _do(node.synced, *change)
            else:
                node.synced = dict(node.entries)
            node.pending.clear()
            return
        assert isinstance(node, File)
        change = (r.offset, r.data if r.op is Op.WRITE else None)
        _do(node.content, *change)
        node.pending.append(change)

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path.split("/"):
            node = node.entries.get(name) if isinstance(node, Folder) else None
        return node

    def content(self, path: str) -> bytes | None:
        """A file's contents while the power is on; None if it does not exist."""
        node = self.find(path)
        return bytes(node.content) if isinstance(node, File) else None

    def certain(self, path: str) -> bool:
        """Whether a file survives a power loss unchanged."""
        folder = self.root
        for name in path.split("/"):
            node = folder.entries.get(name)
            if node is None or folder.synced.get(name) is not node:
                return False
            if isinstance(node, Folder):
                folder = node
        return isinstance(node, File) and not node.pending

    def files(self) -> dict[str, bytes]:
        """Every file that anybody relies on, while the power is on."""
        return {path: bytes(f.content) for path, f in _walk(self.root, "") if path.split("/")[0] not in UNSEEN}

    def lose_power(self, rng: random.Random, target: Path) -> None:
        """Writes to a directory what the disk may hold after a power loss at this moment."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _Loss(rng, self._number).write(self.root, target)

    def _enter(self, path: str, node: Node | None) -> None:
        above, _, name = path.rpartition("/")
        folder = self.find(above) if above else self.root
        assert isinstance(folder, Folder), path
        if node is None:
            folder.entries.pop(name, None)
        else:
            folder.entries[name] = node
        folder.pending.append(Entry(self._number, name, node))


class _Loss:
    """One power loss: entries are lost from some moment on, or here and there, or all, or none; data likewise."""

    def __init__(self, rng: random.Random, now: int) -> None:
        self._rng = rng
        self._way = rng.choice(("none", "all", "since", "any"))
        self._since = rng.randrange(now + 1)
        self._kept: dict[int, bool] = {}

    def write(self, folder: Folder, target: Path) -> None:
        entries = dict(folder.synced)
        for entry in folder.pending:
            if not self._keeps(entry.number):
                continue
            if entry.node is None:
                entries.pop(entry.name, None)
            else:
                entries[entry.name] = entry.node
        for name, node in entries.items():
            if isinstance(node, Folder):
                (target / name).mkdir()
                self.write(node, target / name)
            elif name not in UNSEEN:
                (target / name).write_bytes(self._data(node))

    def _keeps(self, number: int) -> bool:
        if self._way == "any":
            return self._kept.setdefault(number, self._rng.random() < 0.5)
        return self._way == "all" or (self._way == "since" and number < self._since)

    def _data(self, file: File) -> bytes:
        data = bytearray(file.synced)
        way = self._rng.choice(("none", "all", "some", "torn", "zeros"))
        kept = file.pending if way in ("all", "torn", "zeros") else []
        if way == "some":
            kept = [change for change in file.pending if self._rng.random() < 0.5]
        for offset, change in kept:
            if change is not None and way == "torn" and self._rng.random() < 0.5:
                change = change[: self._rng.randrange(len(change) + 1)]
            elif change is not None and way == "zeros":
                change = bytes(len(change))
            _do(data, offset, change)
        return bytes(data)


def _do(data: bytearray, offset: int, change: bytes | None) -> None:
    if change is None:
        del data[offset:]
    data.extend(bytes(max(0, offset - len(data))))
    if change is not None:
        data[offset : offset + len(change)] = change


def _walk(folder: Folder, prefix: str) -> Iterator[tuple[str, File]]:
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            yield from _walk(node, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", node
