"""The nouns as JSON text and back, for meta and for tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from headwater.model import (
    FIRST_SCHEMA,
    Bound,
    Column,
    CoveredSpan,
    DataFile,
    Layout,
    ScanResult,
    Span,
    UpstreamType,
)

_NUMBER = "place"  # what a column's number is called in homes


def dump(value: Any) -> str:
    return json.dumps(asdict(value) if hasattr(value, "__dataclass_fields__") else value, ensure_ascii=False)


def bound(value: dict[str, Any] | None) -> Bound | None:
    return None if value is None else Bound(tuple(value["key"]), value["after"])


def span(value: dict[str, Any]) -> Span:
    return Span(bound(value["lo"]), bound(value["hi"]))


def layout(text: str) -> Layout:
    v = json.loads(text)
    spans = tuple(
        CoveredSpan(span(s["span"]), s["log_index"], s["cover_index"], tuple(s["saw"]), s.get("connection_id", 0))
        for s in v["spans"]
    )
    version = v.get("schema_version", FIRST_SCHEMA)  # homes of earlier releases have one version and one connection
    return Layout(v["relation_id"], v["base_version"], spans, v["complete"], version)


@lru_cache(maxsize=1024)  # called many times a second, almost always with the same text
def columns(text: str) -> tuple[Column, ...]:
    return tuple(Column(c["name"], c["lake_type"], _type(c["upstream"]), c["nullable"]) for c in json.loads(text))


def dump_columns(columns: Iterable[Column]) -> str:
    found = [asdict(column) for column in columns]
    for column in found:
        column["upstream"][_NUMBER] = column["upstream"].pop("number")
    return json.dumps(found)


def _type(value: dict[str, Any]) -> UpstreamType:
    own = {k: v for k, v in value.items() if k != _NUMBER}
    return UpstreamType(**{**own, "labels": tuple(value.get("labels", ())), "number": value.get(_NUMBER, 0)})


def scan_result(text: str) -> ScanResult:
    v = json.loads(text)
    files = tuple(DataFile(**f) for f in v.pop("files"))
    stopped = bound(v.pop("stopped_at"))
    return ScanResult(files=files, stopped_at=stopped, **v)
