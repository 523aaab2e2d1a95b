"""Phrases that screens and lines share."""

from __future__ import annotations

import pytest

from headwater.cli.words import RETRIES, way_out
from headwater.engine.results import JobStatus
from headwater.errors import Retry


def job(hint: str, retry: Retry) -> JobStatus:
    return JobStatus("fold", "home.disk_full", "it failed", hint, retry)


@pytest.mark.parametrize("retry", list(Retry))
def test_whether_it_is_retried_is_reported_once(retry: Retry) -> None:
    said = way_out(job("Free some space.", retry))
    assert said == f"Free some space. ({RETRIES[retry]})"
    for hint in ("Fix the disk or its permissions; Headwater retries.", "Wait; work resumes when meta renews it."):
        assert way_out(job(hint, Retry.AUTO)) == hint
