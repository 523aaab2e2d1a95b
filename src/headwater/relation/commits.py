"""Commits in a base's log, as files: made durable before meta relies on them, or rolled back.

Neither Spark nor delta-rs syncs anything, so after a power loss any file that a commit wrote may be torn or missing.
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
    """The log file of a version's commit."""
    return f"{base_path}/_delta_log/{version:020d}.json"


def make_durable(storage: Storage, base_path: str, after: int, version: int) -> None:
    """Syncs everything that commits in (after, version] added and their readers need; `after` is already durable.

    The cost depends on what was committed, not on the size of the base.
    """
    log = f"{base_path}/_delta_log"
    entries = [entry(base_path, v) for v in range(after + 1, version + 1)]
    if not all(storage.exists(path) for path in entries):
        storage.sync(storage.list(base_path))  # some log entries are already gone, so their files are unknown
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
    """Removes every commit after a version from the log: after a power loss their files cannot be trusted.

    `checkpoint` also removes the version's own checkpoint, which was being written. (The commits in it remain.)
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
    storage.remove([last, _checksum(last)])  # it may name one of them; without it readers list the checkpoints
    for path in sorted(later, key=lambda path: -(_version_of(path) or 0)):  # newest first: a crash leaves no gap
        storage.remove([path])
    storage.sync_folder(log)


def trim(storage: Storage, base_path: str, needed: int, before: float) -> int:
    """Removes log entries older than `before` that the last checkpoint has made redundant; returns how many.

    Nothing reads a version below `needed`, and every recorded commit and its checkpoint are durable.
    """
    log = f"{base_path}/_delta_log"
    kept = last_checkpoint(storage, base_path)
    if kept > needed or not all(storage.exists(f"{log}/{name}") for name in _checkpoint_files(storage, base_path)):
        return 0
    versions = ((of, path) for path in storage.list(log) if (of := _version_of(path)) is not None)
    known = ((of, path, storage.stat(path)) for of, path in versions if of < kept)
    old = sorted((of, path) for of, path, found in known if found is not None and found.modified_at < before)
    for _, path in old:  # oldest first: a crash leaves no gap
        storage.remove([path])
    return len(old)


def removed(storage: Storage, base_path: str, after: int, version: int) -> set[str]:
    """The names of files that commits in (after, version] removed; skips commits that the log no longer has."""
    found: set[str] = set()
    for path in (entry(base_path, v) for v in range(after + 1, version + 1)):
        if storage.exists(path):
            found |= {unquote(a["remove"]["path"]) for a in _actions(storage, path) if "remove" in a}
    return found


def last_checkpoint(storage: Storage, base_path: str) -> int:
    """The version of the last checkpoint; 0 if there is none."""
    path = f"{base_path}/_delta_log/{LAST_CHECKPOINT}"
    if not storage.exists(path):
        return 0
    with storage.open(path) as file:
        return int(json.loads(file.read())["version"])


def _added(storage: Storage, base_path: str, entries: list[str]) -> list[str]:
    """The files that these commits added and did not remove again."""
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
    """The file of an added file's deletion vector, unless the vector is stored inline.

    Its name is encoded as a folder prefix and a UUID in Z85. (Only cloned tables have absolute paths.)
    """
    vector = add.get("deletionVector")
    if vector is None or vector["storageType"] != "u":
        return []
    text = vector["pathOrInlineDv"]
    folder, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    name = f"deletion_vector_{uuid.UUID(bytes=_z85(encoded))}.bin"
    return [f"{folder}/{name}" if folder else name]


def _z85(text: str) -> bytes:
    """Decodes ZeroMQ's base 85, which Python's `base64` has only since 3.13."""
    words = []
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85[character]
        words.append(struct.pack(">I", word))
    return b"".join(words)


def _checkpoint_files(storage: Storage, base_path: str) -> list[str]:
    """The names of the last checkpoint's files, according to `_last_checkpoint`."""
    path = f"{base_path}/_delta_log/{LAST_CHECKPOINT}"
    if not storage.exists(path):
        return []
    with storage.open(path) as file:
        last = json.loads(file.read())
    version, parts = last["version"], last.get("parts")
    if parts is None:
        return [f"{version:020d}.checkpoint.parquet"]
    return [f"{version:020d}.checkpoint.{n:010d}.{parts:010d}.parquet" for n in range(1, parts + 1)]


def _checksum(path: str) -> str:
    """Hadoop's checksum file for a path: optional, but a torn one makes the path unreadable."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _version_of(path: str) -> int | None:
    """The version that a file of a log belongs to; None for any other file."""
    digits = path.rpartition("/")[2].removeprefix(".").partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None
