"""The nouns as JSON text and back, for meta and for tasks."""

from __future__ import annotations

import json
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


def _type(value: dict[str, Any]) -> UpstreamType:
    return UpstreamType(**{**value, "labels": tuple(value.get("labels", ()))})


def scan_result(text: str) -> ScanResult:
    v = json.loads(text)
    files = tuple(DataFile(**f) for f in v.pop("files"))
    stopped = bound(v.pop("stopped_at"))
    return ScanResult(files=files, stopped_at=stopped, **v)
