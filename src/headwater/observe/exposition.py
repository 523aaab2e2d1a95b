"""Metrics as text: Prometheus' exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.engine.status.metrics import Family, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_LABEL = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def text(families: Iterable[Family]) -> str:
    """All families, each with its HELP and TYPE line before its samples."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterable[str]:
    m = family.metric
    yield f"# HELP {m.name} {m.help.translate(_HELP)}"
    yield f"# TYPE {m.name} {m.kind}"
    for sample in family.samples:
        yield _sample(m, sample)


def _sample(m: Metric, sample: Sample) -> str:
    pairs = ",".join(f'{k}="{v.translate(_LABEL)}"' for k, v in zip(m.labels, sample.labels, strict=True))
    return f"{sample.name}{{{pairs}}} {number(sample.value)}" if pairs else f"{sample.name} {number(sample.value)}"


def number(value: float) -> str:
    """A value with all its digits, whole numbers without a point."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
