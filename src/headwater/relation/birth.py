"""A base's first commit: its schema, what its readers and writers must know, and its properties.

It is written here as any Delta writer would: Spark takes a job and a second for it, which a hundred new tables feel,
and delta-rs adds a feature that nothing uses.
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

ALWAYS = ("appendOnly", "invariants")  # what every writer of the first protocol with features must name


def write(storage: Storage, base_path: str, columns: Sequence[Column], properties: Mapping[str, str]) -> None:
    """Makes the empty table, durable when this returns; version 0."""
    now = int(time.time() * 1000)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "CREATE TABLE",
                "operationParameters": {},
                "isBlindAppend": True,
            }
        },
        {"protocol": protocol(columns, properties)},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": Schema.from_arrow(arrow_schema(columns)).to_json(),
                "partitionColumns": [],
                "configuration": dict(properties),
                "createdTime": now,
            }
        },
    ]
    with storage.create(f"{base_path}/_delta_log/{0:020d}.json") as file:
        file.write("".join(json.dumps(a) + "\n" for a in actions).encode())


def protocol(columns: Sequence[Column], properties: Mapping[str, str]) -> dict[str, Any]:
    """The oldest protocol that has what the table uses."""
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
