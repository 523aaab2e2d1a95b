"""Runs statements: definitions go to meta, queries to Spark at one epoch, listings come from meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.results import Result
from headwater.engine.running import AS_IT_IS, Running, Wanted
from headwater.errors import SqlError
from headwater.meta import relations
from headwater.source.upstream import Upstream
from headwater.sql import control, define, listing
from headwater.sql import statements as st
from headwater.sql.define import Outcome, Storable
from headwater.sql.parse import parse
from headwater.sql.run_query import run_query
from headwater.sql.steps import Step, steps

if TYPE_CHECKING:
    from headwater.engine.serve.server import Server


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
            case st.CreateConnection() | st.CreateTable():
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
            case st.Fold():
                return self._fold_table(statement)
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
        def work(running: Running) -> Result:
            return run_query(self._reader(), query, running, wanted, prefix)

        return self._home.live.queries.run(text, work, wanted.timeout_s)

    def _define_together(self, block: Sequence[st.Statement]) -> list[Result]:
        """Checks all definitions of a block, then stores them in one meta transaction: all or none."""
        planned: list[tuple[st.Statement, Storable]] = []
        new: dict[str, Upstream] = {}
        for statement in block:
            if isinstance(statement, st.CreateConnection):
                planned.append((statement, define.plan_connection(self._home, statement)))
                upstream = planned[-1][1].upstream
                if upstream is not None:
                    new[statement.name.lower()] = upstream
            elif isinstance(statement, st.CreateTable):
                planned.append((statement, define.plan_table(self._home, statement, new)))
        together = sum(isinstance(s, st.CreateTable) for s, _ in planned) > 1
        with self._home.meta.write() as c:
            number = relations.next_block(c) if together else 0
            for _, plan in planned:
                plan.store(c, number)
        self._changed()
        return [_result(plan.outcome, statement) for statement, plan in planned]

    def _changed(self) -> None:
        """Wakes the server: definitions have changed."""
        if self._server is not None:
            self._server.wake()

    def _done(self, outcome: Outcome, statement: st.Statement) -> Result:
        self._changed()
        return _result(outcome, statement)

    def _fold_table(self, statement: st.Fold) -> Result:
        relation = define.named_table(self._home, statement.name)
        if self._server is None:
            raise SqlError(
                "sql.unsupported",
                "a fold needs a running server",
                "Start `headwater run` on this home, then try again.",
            )
        message = "folded" if self._server.folds.fold(relation.id) else "nothing to fold"
        return Result(message=message, statement=f"FOLD TABLE {relation.name}")


def _result(outcome: Outcome, statement: st.Statement) -> Result:
    return Result(message=outcome.message, warnings=outcome.warnings, statement=type(statement).__name__)
