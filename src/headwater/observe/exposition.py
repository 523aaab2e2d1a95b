"""Metrics as text: Prometheus' exposition format, version 0.0.4, written by its own client library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric, Sample
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from headwater.engine.status.metrics import Family

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def text(families: Iterable[Family]) -> str:
    """All families, each with its HELP and TYPE lines before its samples."""
    return generate_latest(_Collected(families)).decode()


@dataclass(frozen=True, slots=True)
class _Collected(Collector):
    families: Iterable[Family]

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            m = family.metric
            # the library adds a counter's suffix to its name
            metric = Metric(m.name.removesuffix("_total"), m.help, m.kind)
            metric.samples = [
                Sample(s.name, dict(zip(m.labels, s.labels, strict=True)), s.value) for s in family.samples
            ]
            yield metric
