"""Commits in a base's log, as files: made durable before meta relies on them, or taken back.

Neither Spark nor delta-rs syncs anything, so after a power loss whatever a commit wrote may be torn or missing.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from headwater.errors import base_damaged
from headwater.storage import Storage

LAST_CHECKPOINT = "_last_checkpoint"
_Z85 = {
    character: value
    for value, character in enumerate(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
}
_UUID_CHARACTERS = 20  # of 16 bytes


def entry(base_path: str, version: int) -> str:
    """The file in which a base's log tells the commit of a version."""
    return f"{base_path}/_delta_log/{version:020d}.json"


def make_durable(storage: Storage, base_path: str, after: int, version: int) -> None:
    """Syncs what the commits in (after, version] added and readers of it need; `after` is durable already.

    It costs what was committed, whatever the size of the base.
    """
    log = f"{base_path}/_delta_log"
    entries = [entry(base_path, v) for v in range(after + 1, version + 1)]
    if not all(storage.exists(path) for path in entries):
        storage.sync(storage.list(base_path))  # so far behind that log entries are gone: what they added is not known
        return
    added = _added(storage, base_path, entries)
    beside = [
        f"{log}/{LAST_CHECKPOINT}",
        *(path.removesuffix("json") + "crc" for path in entries),
        *(f"{log}/{name}" for name in _checkpoint_files(storage, base_path)),
    ]
    needed = [*added, *entries, *(path for path in beside if storage.exists(path))]
    try:
        storage.sync([*needed, *(path for path in map(_checksum, needed) if storage.exists(path))])
    except FileNotFoundError as e:
        raise base_damaged(f"a file of the base {base_path} is missing") from e


def take_back(storage: Storage, base_path: str, version: int, *, checkpoint: bool = False) -> None:
    """Removes every commit after a version from the log: what is left of them after a power loss cannot be trusted.

    With `checkpoint` that of the version itself, too: it was being written. (The commits that it holds are there.)
    """
    log = f"{base_path}/_delta_log"
    later = [
        path
        for path in storage.list(log)
        if (of := _version_of(path)) is not None
        and (of > version or (checkpoint and of == version and ".checkpoint." in path))
    ]
    if not later:
        return
    last = f"{log}/{LAST_CHECKPOINT}"
    storage.remove([last, _checksum(last)])  # it may name one of them; without it a reader looks for checkpoints
    for path in sorted(later, key=lambda path: -(_version_of(path) or 0)):  # from the end: a crash leaves no gap
        storage.remove([path])
    storage.sync_folder(log)


def cut(storage: Storage, base_path: str, needed: int, before: float) -> int:
    """Removes log entries that the last checkpoint makes superfluous and that are older than a time; gives how many.

    Nobody reads a version below `needed`, and what is recorded is durable, checkpoints with it.
    """
    log = f"{base_path}/_delta_log"
    kept = last_checkpoint(storage, base_path)
    if kept > needed or not all(storage.exists(f"{log}/{name}") for name in _checkpoint_files(storage, base_path)):
        return 0
    versions = ((of, path) for path in storage.list(log) if (of := _version_of(path)) is not None)
    known = ((of, path, storage.stat(path)) for of, path in versions if of < kept)
    old = sorted((of, path) for of, path, found in known if found is not None and found.modified_at < before)
    for _, path in old:  # from the beginning, so that a crash leaves no gap
        storage.remove([path])
    return len(old)


def last_checkpoint(storage: Storage, base_path: str) -> int:
    """The version of the last checkpoint; 0 without one."""
    path = f"{base_path}/_delta_log/{LAST_CHECKPOINT}"
    if not storage.exists(path):
        return 0
    with storage.open(path) as file:
        return int(json.loads(file.read())["version"])


def _added(storage: Storage, base_path: str, entries: list[str]) -> list[str]:
    """The files that these commits added and none of them removed again."""
    added: dict[str, list[str]] = {}
    for entry in entries:
        actions = list(_actions(storage, entry))
        for action in actions:
            if "remove" in action:
                added.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                added[action["add"]["path"]] = [unquote(action["add"]["path"]), *_vector_files(action["add"])]
    return sorted({f"{base_path}/{name}" for names in added.values() for name in names})


def _actions(storage: Storage, entry: str) -> Iterator[dict[str, Any]]:
    with storage.open(entry) as file:
        yield from (json.loads(line) for line in file.read().splitlines() if line)


def _vector_files(add: dict[str, Any]) -> list[str]:
    """The file of an added file's deletion vector, if it has one of its own.

    Its name is a prefix that is a folder, and a UUID in Z85. (Absolute paths are of tables that were cloned.)
    """
    vector = add.get("deletionVector")
    if vector is None or vector["storageType"] != "u":
        return []
    text = vector["pathOrInlineDv"]
    folder, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    name = f"deletion_vector_{uuid.UUID(bytes=_z85(encoded))}.bin"
    return [f"{folder}/{name}" if folder else name]


def _z85(text: str) -> bytes:
    """The bytes of a text in ZeroMQ's base 85, which Python's `base64` knows from 3.13 on."""
    words = []
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85[character]
        words.append(struct.pack(">I", word))
    return b"".join(words)


def _checkpoint_files(storage: Storage, base_path: str) -> list[str]:
    """The names of the last checkpoint's files: its writer says so in a file of its own."""
    path = f"{base_path}/_delta_log/{LAST_CHECKPOINT}"
    if not storage.exists(path):
        return []
    with storage.open(path) as file:
        said = json.loads(file.read())
    version, parts = said["version"], said.get("parts")
    if parts is None:
        return [f"{version:020d}.checkpoint.parquet"]
    return [f"{version:020d}.checkpoint.{n:010d}.{parts:010d}.parquet" for n in range(1, parts + 1)]


def _checksum(path: str) -> str:
    """Where Hadoop keeps the checksums of a file; it does without them, but not with torn ones."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _version_of(path: str) -> int | None:
    """The version that a file of a log belongs to; None for any other file."""
    digits = path.rpartition("/")[2].removeprefix(".").partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None
