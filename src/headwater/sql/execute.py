"""Runs statements: definitions go to meta, queries to Spark at one epoch, listings come from meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.results import Result
from headwater.engine.running import AS_IT_IS, Running, Wanted
from headwater.errors import DefinitionError, SqlError
from headwater.meta import plain_views, relations
from headwater.source.upstream import Upstream
from headwater.sql import control, define, listing
from headwater.sql import statements as st
from headwater.sql.outcome import Outcome, Storable
from headwater.sql.parse import parse
from headwater.sql.run_query import run_query
from headwater.sql.steps import Step, steps
from headwater.sql.view import control as view_control
from headwater.sql.view import known as known_names
from headwater.sql.view import names
from headwater.sql.view.analyse import columns_of
from headwater.sql.view.define import Analysing, plan_plain_view, plan_view
from headwater.sql.view.drop import drop_view
from headwater.sql.view.explain import explained
from headwater.sql.view.known import Known
from headwater.sql.view.listing import described, explanation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.serve.server import Server

T = TypeVar("T")


class Executor:
    """Executes SQL text on a home.

    `reader` returns the reader (and starts Spark at the first query); `server` is None if we are not the server.
    """

    def __init__(self, home: Home, reader: Callable[[], Reader], server: Server | None = None) -> None:
        self._home = home
        self._reader = reader
        self._server = server

    def run(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        """The results of all statements of a text; the first error ends it, earlier statements keep their effect."""
        results: list[Result] = []
        for step in steps(parse(text)):
            results += self.carry_out(step, wanted)
        return results

    def carry_out(self, step: Step, wanted: Wanted = AS_IT_IS) -> list[Result]:
        """The results of one step: a statement, or a block, which takes effect as a whole or not at all."""
        if step.block:
            return self._define_together(step.statements)
        return [self._one(step.statements[0], wanted)]

    def _one(self, statement: st.Statement, wanted: Wanted) -> Result:
        match statement:
            case st.CreateConnection() | st.CreateTable() | st.CreateMaterializedView() | st.CreateView():
                return self._define_together((statement,))[0]
            case st.DropTable():
                return self._done(define.drop_table(self._home, statement), statement)
            case st.DropConnection():
                return self._done(define.drop_connection(self._home, statement, self._server), statement)
            case st.AlterTable():
                return self._done(control.alter_table(self._home, statement), statement)
            case st.ControlBackfill():
                return self._done(control.control_backfill(self._home, statement), statement)
            case st.ResyncTable():
                return self._done(control.resync_table(self._home, statement), statement)
            case st.DropView():
                return self._done(drop_view(self._home, statement), statement)
            case st.AlterView():
                return self._done(view_control.alter_view(self._home, statement, self._analysing(statement)), statement)
            case st.ControlView():
                return self._done(view_control.control_view(self._home, statement), statement)
            case st.RefreshView():
                outcome = view_control.refresh_view(self._home, statement, self._analysing(statement))
                return self._done(outcome, statement)
            case st.ExplainView():
                return self._explain_view(statement)
            case st.Describe():
                return self._describe(statement)
            case st.Fold():
                return self._fold(statement)
            case st.Query():
                return self._query(statement, statement.text, wanted)
            case st.Explain():
                # a plan does not depend on how old or complete its tables are
                prefix = f"EXPLAIN {statement.mode} "
                return self._query(statement.query, statement.text, Wanted(timeout_s=wanted.timeout_s), prefix)
            case st.CancelQuery():
                self._home.live.queries.cancel(statement.id)
                return Result(message=f"query {statement.id} cancelled", statement=f"CANCEL QUERY {statement.id}")
            case _:
                return listing.run(self._home, statement)

    def _query(self, query: st.Query, text: str, wanted: Wanted, prefix: str = "") -> Result:
        with self._home.meta.read() as c:
            plain = plain_views.needed(c, sorted(query.identifiers))

        def work(running: Running) -> Result:
            return run_query(self._reader(), query, plain, running, wanted, prefix)

        return self._home.live.queries.run(text, work, wanted.timeout_s)

    def _define_together(self, block: Sequence[st.Statement]) -> list[Result]:
        """Checks all definitions of a block, then stores them in one meta transaction: all or none."""
        planned: list[tuple[st.Statement, Storable]] = []
        new: dict[str, Upstream] = {}
        known: dict[str, Known] = {}
        for statement in block:
            plan = self._planned(statement, new, known)
            planned.append((statement, plan))
            if plan.upstream is not None and isinstance(statement, st.CreateConnection):
                new[statement.name.lower()] = plan.upstream
            if plan.known is not None:
                if plan.known.name.lower() in known:
                    raise _twice(statement, plan.known.name)
                known[plan.known.name.lower()] = plan.known
        together = sum(isinstance(s, st.CreateTable) for s, _ in planned) > 1
        with self._home.meta.write() as c:
            number = relations.next_block(c) if together else 0
            for _, plan in planned:
                plan.store(c, number)
        self._changed()
        return [_result(plan.outcome, statement) for statement, plan in planned]

    def _planned(self, statement: st.Statement, new: dict[str, Upstream], known: dict[str, Known]) -> Storable:
        match statement:
            case st.CreateConnection():
                return define.plan_connection(self._home, statement)
            case st.CreateTable():
                return define.plan_table(self._home, statement, new)
            case st.CreateView():
                return plan_plain_view(self._home, statement, known, self._analysing(statement))
            case st.CreateMaterializedView():
                return plan_view(self._home, statement, known, self._analysing(statement))
        raise AssertionError(f"{type(statement).__name__} is not a definition")

    def _analysing(self, statement: st.Statement) -> Analysing:
        """Lends a session to an analysis, which can be cancelled like a query."""

        def analysing(work: Callable[[SparkSession], T]) -> T:
            def in_session(running: Running) -> T:
                with self._reader().pinned((), query=running) as at:
                    return work(at.session)

            return self._home.live.queries.run(statement.text, in_session)

        return analysing

    def _explain_view(self, statement: st.ExplainView) -> Result:
        relation = view_control.named_view(self._home, statement.name)
        found = view_control.shape_now(self._home, relation, self._analysing(statement))
        return explanation(relation.name, explained(found))

    def _describe(self, statement: st.Describe) -> Result:
        with self._home.meta.read() as c:
            plain = plain_views.find(c, statement.name)
            everything = known_names.everything(c) if plain is not None else {}
        if plain is None:
            return listing.run(self._home, statement)
        query, analysing = plain.query, self._analysing(statement)
        return described(plain.name, analysing(lambda session: columns_of(session, query, everything)))

    def _changed(self) -> None:
        """Wakes the server: definitions have changed."""
        if self._server is not None:
            self._server.wake()

    def _done(self, outcome: Outcome, statement: st.Statement) -> Result:
        self._changed()
        return _result(outcome, statement)

    def _fold(self, statement: st.Fold) -> Result:
        with self._home.meta.read() as c:
            relation = names.relation(c, statement.kind, statement.name)
        if self._server is None:
            raise SqlError(
                "sql.unsupported",
                "a fold needs a running server",
                "Start `headwater run` on this home, then try again.",
            )
        message = "folded" if self._server.folds.fold(relation.id) else "nothing to fold"
        return Result(message=message, statement=f"FOLD {statement.kind.upper()} {relation.name}")


def _twice(statement: st.Statement, name: str) -> DefinitionError:
    text = f"line {statement.line}: the block defines {name} twice"
    return DefinitionError("name.taken", text, "Use another name: tables and views share one namespace.")


def _result(outcome: Outcome, statement: st.Statement) -> Result:
    return Result(message=outcome.message, warnings=outcome.warnings, statement=type(statement).__name__)
