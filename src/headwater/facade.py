"""A home as a program uses it: `headwater.open(home)`."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.config import home_from
from headwater.engine.home import Home, is_home, missing_home
from headwater.engine.query.freshness import worth_saying
from headwater.engine.results import Behind, Result, Status, TableStatus, Verified
from headwater.engine.running import AS_IT_IS, Wanted
from headwater.engine.serve import remote, wire
from headwater.engine.status.status import status_of
from headwater.errors import HeadwaterError, IncompleteWarning, InputError, MachineError, StaleWarning, restored
from headwater.meta import changes as changes_of
from headwater.meta import connections, epochs, relations
from headwater.model import ConnectionState, TableState
from headwater.settings.load import NOTHING, Given, load
from headwater.settings.table import Line, lines
from headwater.source.connected import passed, upstream_of

if TYPE_CHECKING:  # Spark, the kernels and the drivers take seconds to load: each is loaded when it is needed
    from pyspark.sql import DataFrame, SparkSession

    from headwater.capture.until import Until
    from headwater.engine.query.read import Reader
    from headwater.engine.serve.server import Server
    from headwater.engine.spark.launch import Launch
    from headwater.sql.apply import Definitions
    from headwater.sql.execute import Executor
    from headwater.sql.steps import Step

PROGRESS_S = 0.25

log = logging.getLogger(__name__)

OnProgress = Callable[[list[TableStatus]], None]


def open_home(
    home: str | Path | None = None,
    spark: SparkSession | None = None,
    *,
    config: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Headwater:
    """Opens a home (default: HEADWATER_HOME, or ./headwater-data).

    If there is none, `run`, `running` and CREATE CONNECTION create it; anything else raises `home.missing`. A
    session passed as `spark` must have Delta's extension and catalog; otherwise one is started when it is needed.
    `settings` (`{"fold.age": "10min"}`) override the environment and the file: `config`, or the home's.
    """
    given = Given(None if config is None else str(config), settings or {})
    return Headwater(home_from(None if home is None else str(home)), spark, given)


class Headwater:
    """An open home. Use as a context manager, or call `close()`.

    `sql` and `table` read at the newest epoch, whether a server runs or not; `run` is the server. `on_notice` is
    called with what the user should know about the home: that it was created, that it was open to other users.
    """

    def __init__(self, home: Path, session: SparkSession | None = None, given: Given = NOTHING) -> None:
        self.home = home
        self._settings_given = given
        self.on_notice: Callable[[str], None] = log.info
        self._definitions: Definitions | None = None
        self._opened: Home | None = None
        self._undecided = False  # whether a new home stays: it does if something is defined in it
        self._given = session
        self._own: SparkSession | None = None
        self._launch: Launch | None = None
        self._server: Server | None = None
        self._reader: Reader | None = None
        self._lock = threading.Lock()

    def sql(
        self,
        text: str,
        *,
        require_complete: bool = False,
        timeout_s: float | None = None,
        max_age_s: float | None = None,
        fresh: bool = False,
    ) -> list[Result]:
        """Runs statements; one result each. Definitions reach a server in another process through its socket.

        A query is cancelled after `timeout_s`, by KeyboardInterrupt, or by CANCEL QUERY. With `require_complete` a
        query over tables that are still being filled is an error. If a result's tables are behind their upstream, its
        `behind` and a `StaleWarning` say so; if they are further behind than `max_age_s`, it is an error instead. With
        `fresh` a query waits, for a minute at most, until its views hold what was published when it began.
        """
        results = self.ask(text, Wanted(require_complete, timeout_s, max_age_s, fresh))
        _warn(b for r in results for b in r.behind)
        return results

    def ask(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        """Like `sql`, for callers that report stale tables themselves: commands, and the server at its socket."""
        other = None if self._server else remote.find(self.home)
        if other is not None:
            return other.ask(text, wanted)
        if self._opened is None and _makes_connection(text):
            self._open(create=True)
        try:
            return self._executor().run(text, wanted)
        finally:
            self._keep_or_discard()

    def table(self, name: str) -> DataFrame:
        """A table at the newest epoch as a Spark DataFrame; its files are kept for an hour, or until `close()`.

        Issues a `StaleWarning` if the table is behind its upstream, an `IncompleteWarning` if not all of it is shown.
        """
        frame, found, missing = self._read().rows(name)
        for text in missing:
            warnings.warn(text, IncompleteWarning, stacklevel=2)
        other = None if self._server else remote.find(self.home)
        _warn(worth_saying(found) if other is None else ())
        return frame

    def run(
        self,
        text: str = "",
        *,
        once: bool = False,
        fold: bool = True,
        progress: OnProgress | None = None,
        metrics_port: int = 0,
        until: str = "",
    ) -> None:
        """Executes the definitions that it can and keeps the tables fresh until KeyboardInterrupt.

        Failed definitions are returned by `refused()`, and retried if that can help; remaining failures are raised at
        the end, or immediately if nothing at all is defined. With `once` it returns when every table and view has
        caught up with the upstream as it was when all were defined, and folds first (unless `fold` is False); failures
        are raised once all other tables are there. With `until`, a position or a time, nothing that committed after it
        is included, and it returns when that point is reached. `metrics_port`: see `running`.
        """
        from headwater.sql.apply import Definitions

        if once:
            self.require(text)
        definitions = Definitions(text, self._carry_out, self.on_notice)
        self._definitions = definitions

        def go_on() -> bool:
            definitions.apply_if_due()
            return False

        try:
            with self._running(metrics_port, until):
                definitions.apply()
                if (cause := definitions.cause()) is not None and self._is_empty():
                    raise cause
                self._keep()
                definitions.tell()
                if until:
                    self._watch(progress, self._has_reached_end)
                    if fold:
                        self.fold_all()
                elif once:
                    self._catch_up(progress)
                    if fold:
                        self.fold_all()
                    self._raise_failures()
                else:
                    self._watch(progress, go_on)
        finally:
            self._keep_or_discard()
        if (refused := self.refused()) is not None:
            raise refused

    def require(self, text: str) -> None:
        """Raises unless a home exists or the text creates one: with nothing to define, the name is mistyped.

        Wrong settings are reported first: they may name another home's meta.
        """
        load(self.home, self._settings_given)
        if not text.strip() and not is_home(self.home):
            raise missing_home(self.home)

    def refused(self) -> HeadwaterError | None:
        """The statements of the last `run`'s text that failed, with reasons and hints; None if none did."""
        return None if self._definitions is None else self._definitions.error()

    @contextlib.contextmanager
    def running(self, *, metrics_port: int = 0, until: str = "") -> Iterator[Self]:
        """Runs the server inside the block; commands and other programs reach it through the home's socket.

        With a `metrics_port` it also serves its metrics at http://127.0.0.1:PORT/metrics.
        """
        with self._running(metrics_port, until):
            self._keep()
            yield self

    @contextlib.contextmanager
    def _running(self, metrics_port: int, until: str) -> Iterator[None]:
        from headwater.capture.until import Until
        from headwater.observe.endpoint import observed

        self._open(create=True)
        with observed(self._home, metrics_port), self._serving(Until.parse(until) if until else None):
            yield

    @contextlib.contextmanager
    def _serving(self, until: Until | None) -> Iterator[None]:
        from headwater.engine.serve.server import Server

        server = Server(self._home, self._given, until)
        server.start()
        self._server = server
        listener = None
        try:
            listener = wire.serve(self._home.socket, lambda request: remote.answer(self, request))
            yield
        finally:
            self._home.live.queries.cancel_all()
            if listener is not None:
                listener.close()
            self._server = None
            server.stop()

    def verify(self, table: str | None = None) -> list[Verified]:
        """Compares a table (or all) with its upstream at one cut, and views with their queries, while all runs."""
        other = None if self._server else remote.find(self.home)
        if other is not None:
            return other.verify(table)
        home = self._home
        if self._server is None:
            raise MachineError(
                "server.none",
                f"no server runs on {self.home}, and a comparison needs its captures",
                "Start `headwater run` on this home, then verify again.",
            )
        from headwater.check.tables import verify_tables
        from headwater.check.views import verify_views

        with home.meta.read() as c:
            named = None if table is None else relations.find(c, table)
        if named is not None and named.view is not None:
            return verify_views(home, self._read(), self._server.views.trees, named.name)
        found = verify_tables(home, self._read(), table)
        return found + (verify_views(home, self._read(), self._server.views.trees) if table is None else [])

    def status(self) -> Status:
        """The state of the home, from meta alone."""
        other = None if self._server else remote.find(self.home)
        return other.status() if other else status_of(self._home, self._server)

    def settings(self) -> list[Line]:
        """The settings in force: the running server's, or those that a start would use."""
        other = None if self._server else remote.find(self.home)
        if other is not None:
            return other.settings()
        opened = self._opened
        return list(lines(load(self.home, self._settings_given) if opened is None else opened.settings))

    def given(self) -> Given:
        """What the running server's command line sets, or what this home was opened with."""
        other = None if self._server else remote.find(self.home)
        return self._settings_given.anywhere() if other is None else other.given()

    def fold_all(self) -> None:
        """Folds every table that can be folded."""
        assert self._server is not None, "folding needs a running server"
        with self._home.meta.read() as c:
            found = [r for r in relations.all(c) if r.state is TableState.LIVE]
        for relation in found:
            self._server.folds.fold(relation.id)

    def close(self) -> None:
        """Cancels running queries, releases pins and stops the Spark that was started here."""
        if self._launch is not None:
            self._launch.cancel()
            self._launch = None
        if self._opened is not None:
            self._opened.live.queries.cancel_all()
        if self._reader is not None:
            self._reader.close()
        if self._own is not None:
            from headwater.engine.spark import session as spark

            spark.stop(self._own)
            self._own = None
        if self._opened is not None:
            self._opened.meta.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def _home(self) -> Home:
        return self._open(create=False)

    def _open(self, *, create: bool) -> Home:
        """The home, opened when it is first needed."""
        with self._lock:
            if self._opened is None:
                settings = load(self.home, self._settings_given)
                self._opened = Home.open(self.home, settings, create=create)
                self._undecided = self._opened.is_new
                if not self._undecided:
                    self._tell(self._opened)
            return self._opened

    def _tell(self, opened: Home) -> None:
        for text in opened.notices:
            self.on_notice(text)

    def _keep(self) -> None:
        """Keeps a new home, and says that it was created."""
        if self._undecided and self._opened is not None:
            self._undecided = False
            self._tell(self._opened)

    def _keep_or_discard(self) -> None:
        """Keeps a new home if something was defined in it; otherwise it leaves no trace."""
        if not self._undecided or self._opened is None or self._server is not None:
            return
        if self._own is not None or not self._is_empty():
            self._keep()
            return
        opened, self._opened, self._reader = self._opened, None, None
        opened.discard()

    def _executor(self) -> Executor:
        home = self._home  # first: a missing home is reported before Spark's modules are loaded
        from headwater.sql.execute import Executor

        return Executor(home, self._read, self._server)

    def _carry_out(self, step: Step) -> list[Result]:
        results = self._executor().carry_out(step)
        if self._undecided and not self._is_empty():
            self._keep()  # said before anything about the definitions
        return results

    def _read(self) -> Reader:
        if self._server is not None:
            return self._server.reader
        home = self._home
        with self._lock:
            if self._reader is None:
                from headwater.engine.query.read import Reader

                self._reader = Reader(home, self._session)
            return self._reader

    def _session(self) -> SparkSession:
        """Our own Spark, started by the first query that needs it."""
        from headwater.engine.spark import session as spark
        from headwater.engine.spark.launch import Launch

        if self._given is not None:
            return spark.check_session(self._given)
        if self._own is None:
            self._launch = self._launch or Launch()
            self._own = spark.start(self.home, self._home.settings, self._home.storage, launch=self._launch)
        return self._own

    def _is_empty(self) -> bool:
        """Whether nothing is defined, so there is nothing to run."""
        with self._home.meta.read() as c:
            return not connections.all(c)

    def _catch_up(self, progress: OnProgress | None) -> None:
        from headwater.engine.view.barriers import behind

        with self._home.meta.read() as c:
            known = connections.all(c)
        targets: dict[int, str] = {}
        reached: list[int] = []  # the first epoch with everything up to the targets

        def caught_up() -> bool:
            for connection in known:
                if connection.id not in targets:
                    targets[connection.id] = upstream_of(self._home.meta, connection.id).position()
            if not reached and self._has_reached(targets):
                reached.extend(self._whole_epoch())
            with self._home.meta.read() as c:
                return bool(reached) and not behind(c, reached[0])

        self._watch(progress, caught_up)

    def _whole_epoch(self) -> list[int]:
        """The newest epoch, if it has everything that was captured."""
        with self._home.meta.read() as c:
            newest, known = epochs.newest(c), connections.all(c)
        return [newest.id] if newest and all(newest.index_of(x.id) >= x.committed_index for x in known) else []

    def _has_reached(self, targets: dict[int, str]) -> bool:
        """Whether everything that can make progress is where it should be; a failure holds up nothing else."""
        with self._home.meta.read() as c:
            going = {x.id: x for x in connections.all(c) if not (x.state is ConnectionState.FAILED and x.error)}
            states = [r for r in relations.all(c) if r.view is not None or changes_of.connection_of(r) in going]
        if any(not passed(x.type, x.position, targets.get(x.id, x.position)) for x in going.values()):
            return False
        return all(r.state is TableState.LIVE or (r.state is TableState.FAILED and r.error) for r in states)

    def _raise_failures(self) -> None:
        """Raises the errors of failed connections, tables and definitions, if any."""
        with self._home.meta.read() as c:
            known = [(x.name, x.state is ConnectionState.FAILED, x.error) for x in connections.all(c)]
            known += [(r.name, r.state is TableState.FAILED, r.error) for r in relations.all(c)]
        failed = [(name, restored(error)) for name, has_failed, error in known if has_failed and error]
        if failed:
            refused = None if self._definitions is None else self._definitions.error(failed)
            raise failed[0][1] if refused is None else refused

    def _has_reached_end(self) -> bool:
        """Whether every capture is at the requested end, and everything it captured is in an epoch."""
        server = self._server
        assert server is not None
        with self._home.meta.read() as c:
            known = connections.all(c)
            newest = epochs.newest(c)
        if server.until is not None and server.until.position and len(known) > 1:
            raise InputError(
                "input.usage", "a position belongs to one connection, and there are several", "Give a time instead."
            )
        for connection in known:
            if connection.state is ConnectionState.FAILED and connection.error:
                raise restored(connection.error)
            published = newest is not None and newest.index_of(connection.id) == connection.committed_index
            if connection.id not in server.supervisor.reached or not published:
                return False
        return bool(known)

    def _watch(self, progress: OnProgress | None, done: Callable[[], bool]) -> None:
        """Shows progress until done; the server's own failure ends it."""
        server = self._server
        assert server is not None
        while True:
            if server.failure is not None:
                raise server.failure
            try:
                finished = done()
                if progress is not None:
                    progress(list(status_of(self._home, server).tables))
            except MachineError:  # meta does not answer: its users report that and retry
                finished = False
            if finished:
                return
            time.sleep(PROGRESS_S)


def _makes_connection(text: str) -> bool:
    """Whether the text creates a connection: without one a home holds nothing, so only that creates a home."""
    from headwater.sql.parse import parse
    from headwater.sql.statements import CreateConnection

    return any(isinstance(statement, CreateConnection) for statement in parse(text))


def _warn(found: Iterable[Behind]) -> None:
    """Warns the caller of `sql` or `table` about each stale connection that it read, once."""
    for text in sorted({str(b) for b in found}):
        warnings.warn(text, StaleWarning, stacklevel=3)


__all__ = ["Headwater", "HeadwaterError", "open_home"]
