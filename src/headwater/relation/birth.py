"""A base's first commit: its schema, its reader and writer protocol, and its properties.

We write it ourselves because Spark takes a job and a second for it, which adds up over a hundred new tables, and
delta-rs adds a feature that nothing uses.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import Schema

from headwater.decode.values import arrow_schema
from headwater.model import Column
from headwater.storage import Storage

ALWAYS = ("appendOnly", "invariants")  # mandatory as soon as a table lists any features


def write(storage: Storage, base_path: str, columns: Sequence[Column], properties: Mapping[str, str]) -> None:
    """Creates the empty table as version 0, durable on return.

    An existing one is kept: an interrupted attempt, or another owner, created it.
    """
    now = int(time.time() * 1000)
    expected = {
        "protocol": protocol(columns, properties),
        "schemaString": Schema.from_arrow(arrow_schema(columns)).to_json(),
        "configuration": dict(properties),
    }
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "CREATE TABLE",
                "operationParameters": {},
                "isBlindAppend": True,
            }
        },
        {"protocol": expected["protocol"]},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": expected["schemaString"],
                "partitionColumns": [],
                "configuration": expected["configuration"],
                "createdTime": now,
            }
        },
    ]
    path = f"{base_path}/_delta_log/{0:020d}.json"
    if storage.exists(path):
        if _described(storage, path) == expected:
            return
        storage.remove([path])  # torn by a crash
    with storage.create(path) as file:
        file.write("".join(json.dumps(a) + "\n" for a in actions).encode())


def _described(storage: Storage, path: str) -> dict[str, Any]:
    """A first commit's description of its table; empty if the commit is incomplete."""
    try:
        actions: dict[str, Any] = {}
        for line in storage.read(path).splitlines():
            actions |= json.loads(line)
        table = actions["metaData"]
        return {"protocol": actions["protocol"], **{name: table[name] for name in ("schemaString", "configuration")}}
    except (ValueError, KeyError, TypeError):
        return {}


def protocol(columns: Sequence[Column], properties: Mapping[str, str]) -> dict[str, Any]:
    """The oldest protocol that supports the features the table uses."""
    features = []
    if properties.get("delta.enableDeletionVectors") == "true":
        features.append("deletionVectors")
    if any("TIMESTAMP_NTZ" in c.lake_type for c in columns):
        features.append("timestampNtz")
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, *ALWAYS],
    }
