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


class Json:
    """Converts the nouns to JSON text and back."""

    @staticmethod
    def dump(value: Any) -> str:
        return json.dumps(asdict(value) if hasattr(value, "__dataclass_fields__") else value, ensure_ascii=False)

    @staticmethod
    def bound(value: dict[str, Any] | None) -> Bound | None:
        return None if value is None else Bound(tuple(value["key"]), value["after"])

    @classmethod
    def span(cls, value: dict[str, Any]) -> Span:
        return Span(cls.bound(value["lo"]), cls.bound(value["hi"]))

    @classmethod
    def layout(cls, text: str) -> Layout:
        v = json.loads(text)
        spans = tuple(
            CoveredSpan(
                cls.span(s["span"]), s["log_index"], s["cover_index"], tuple(s["saw"]), s.get("connection_id", 0)
            )
            for s in v["spans"]
        )
        version = v.get("schema_version", FIRST_SCHEMA)  # homes of earlier releases have one version and one connection
        return Layout(v["relation_id"], v["base_version"], spans, v["complete"], version)

    @classmethod
    @lru_cache(maxsize=1024)  # called many times a second, almost always with the same text
    def columns(cls, text: str) -> tuple[Column, ...]:
        return tuple(
            Column(c["name"], c["lake_type"], cls._type(c["upstream"]), c["nullable"]) for c in json.loads(text)
        )

    @staticmethod
    def _type(value: dict[str, Any]) -> UpstreamType:
        return UpstreamType(**{**value, "labels": tuple(value.get("labels", ()))})

    @classmethod
    def scan_result(cls, text: str) -> ScanResult:
        v = json.loads(text)
        files = tuple(DataFile(**f) for f in v.pop("files"))
        stopped = cls.bound(v.pop("stopped_at"))
        return ScanResult(files=files, stopped_at=stopped, **v)
