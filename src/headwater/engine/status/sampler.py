"""Periodic samples of meta and the upstreams, so that reading the status needs no query to an upstream."""

from __future__ import annotations

import datetime
import logging
import time
from functools import partial

from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.status.progress import Ahead, Rate
from headwater.errors import HeadwaterError, Retry, SourceError, restored
from headwater.meta import connections, progress, relations
from headwater.model import ConnectionInfo, ConnectionState, TableState
from headwater.source.connected import passed, upstream_of
from headwater.source.upstream import LogEnd

log = logging.getLogger(__name__)

ANSWER = "answer"  # the job whose failure is an upstream's silence
LOOK_S = 1.0
ASK_S = 2.0
ASK_AGAIN_S = 10.0  # the pause after an upstream did not answer
SILENT_S = 8.0  # an upstream that has not answered for this long is reported; on a busy one a connection takes a while


class Sampler:
    """Samples how fast tables fill, new errors, and how far upstreams are ahead. `look` and `ask` have a loop each."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._rates: dict[int, Rate] = {}
        self._ahead: dict[int, Ahead] = {}
        self._ends: dict[int, LogEnd] = {}
        self._types: dict[int, str] = {}
        self._rest: dict[int, float] = {}
        self._errors: dict[tuple[str, int], str] = {}
        self._answered_at: dict[int, datetime.datetime] = {}
        self._unanswered: dict[int, float] = {}  # when the first question was asked that is still without an answer
        self._reported: set[int] = set()  # upstreams that are reported as silent

    def look(self) -> None:
        """Samples meta."""
        with self._home.meta.read() as c:
            found, known, linked = progress.of_all(c), relations.all(c), connections.all(c)
        errors = {("connection", x.id): x.error for x in linked if x.error}
        errors |= {("table", r.id): r.error for r in known if r.error}
        # time in which a table is not being scanned must not lower its rate
        filling = [r.id for r in known if r.shown_state == TableState.FILLING and found[r.id].total]
        now = time.monotonic()
        self._rates = {id: self._rates.get(id, Rate()).saw(found[id].rows, now) for id in filling}
        codes = {who: error["code"] for who, error in errors.items()}
        for who, code in codes.items():
            if self._errors.get(who) != code:
                self._home.live.counters.add("headwater_errors_total", of=code)
        self._errors = codes
        self._report_silence(linked)

    def ask(self) -> None:
        """Queries each upstream that has a changelog for the end of its log."""
        with self._home.meta.read() as c:
            known = {x.id: x for x in connections.all(c) if x.resume_position and not _unreachable(x)}
        for gone in self._ahead.keys() - known.keys():
            del self._ahead[gone]  # dropped or unreachable: how far it is ahead is unknown
            self._ends.pop(gone, None)
        for gone in self._unanswered.keys() - known.keys():
            del self._unanswered[gone]  # its capture reports that
        for connection in known.values():
            if time.monotonic() >= self._rest.get(connection.id, 0.0):
                self._ask(connection)

    def rate(self, relation_id: int) -> float:
        return self._rates.get(relation_id, Rate()).per_second()

    def log_end(self, connection_id: int) -> LogEnd | None:
        return self._ends.get(connection_id)

    def lag(self, connection_id: int, position: str) -> Lag | None:
        ahead = self._ahead.get(connection_id)
        if ahead is None:
            return None
        return ahead.lag(position, partial(passed, self._types[connection_id]), time.monotonic())

    def _report_silence(self, linked: list[ConnectionInfo]) -> None:
        """Reports upstreams that accept connections and then say nothing: their captures only wait."""
        failures, silent = self._home.live.failures, set()
        for x in linked:
            asked_at = self._unanswered.get(x.id)
            if asked_at is None or time.monotonic() - asked_at < SILENT_S:
                continue
            silent.add(x.id)
            if x.id not in self._reported:
                since = self._answered_at.get(x.id) or _now() - datetime.timedelta(seconds=time.monotonic() - asked_at)
                failures.failed(Who(ANSWER, connection=x.id), _silent(since))
        for id in self._reported - silent:
            failures.succeeded(Who(ANSWER, connection=id))
        self._reported = silent

    def _ask(self, connection: ConnectionInfo) -> None:
        self._unanswered.setdefault(connection.id, time.monotonic())
        try:
            end = upstream_of(self._home.meta, connection.id).log_end(connection.position)
        except HeadwaterError as e:
            # its capture gets the same error, and reports it as the connection's state
            log.debug("no answer from %s: %s", connection.name, e.code)
            self._rest[connection.id] = time.monotonic() + ASK_AGAIN_S
            self._ends.pop(connection.id, None)
            if e.retry is not Retry.AUTO:
                self._unanswered.pop(connection.id, None)  # a refusal is an answer
            return
        self._answered_at[connection.id] = _now()
        self._unanswered.pop(connection.id, None)
        self._types[connection.id] = connection.type
        before = self._ahead.get(connection.id, Ahead())
        self._ahead[connection.id] = before.saw(
            end.position, end.behind_bytes, time.monotonic(), connection.position, partial(passed, connection.type)
        )
        self._ends[connection.id] = end


def _silent(since: datetime.datetime) -> SourceError:
    return SourceError(
        "source.unreachable",
        f"the upstream has not answered since {since:%Y-%m-%d %H:%M:%S} UTC",
        "Check that its server is not hung and that the network is up; a running Headwater retries.",
        Retry.AUTO,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _unreachable(x: ConnectionInfo) -> bool:
    """Whether its capture is retrying to reach the upstream: asking too would only block, and delay a shutdown."""
    return x.state is ConnectionState.RETRYING and x.error is not None and isinstance(restored(x.error), SourceError)
