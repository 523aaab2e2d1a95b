"""What the suites of values run over: a fresh database of each kind."""

from __future__ import annotations

import pytest

from support import upstreams
from support.upstreams import Upstream


@pytest.fixture(params=upstreams.EVERY, ids=lambda kind: kind.name)
def upstream(request: pytest.FixtureRequest) -> Upstream:
    return upstreams.fresh(request, request.param)
