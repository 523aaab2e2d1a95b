"""A file of definitions: runs every statement it can, and keeps the failures with reason and hint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headwater.backoff import Backoff
from headwater.engine.results import Result
from headwater.errors import FencedError, HeadwaterError, Retry
from headwater.sql import statements as st
from headwater.sql.parse import parse
from headwater.sql.steps import Step, steps

RETRY = Backoff(5.0, 30.0)
QUESTIONS = (st.Query, st.Explain, st.ExplainView, st.Show, st.ShowCreate, st.Describe)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that failed. `needs` names what it depends on and what failed: a connection, or a table or view."""

    step: Step
    error: HeadwaterError
    needs: str = ""


class Definitions:
    """The definitions of a text on their way into a home.

    `carry_out` runs one step; `say` receives, one line each, what the user should know immediately. A syntax error
    anywhere in the text is raised here, before any step runs.
    """

    def __init__(
        self, text: str, carry_out: Callable[[Step], Sequence[Result]], say: Callable[[str], None] = lambda text: None
    ) -> None:
        self._carry_out = carry_out
        self._say = say
        self._waiting = steps(parse(text))
        self.refused: tuple[Refusal, ...] = ()
        self._total = len(self._waiting)
        self._reported: set[str] = set()
        self._pause_s = 0.0
        self._retry_at = 0.0

    def apply(self) -> None:
        """Tries every remaining step, in order."""
        refused: list[Refusal] = []
        away: dict[str, HeadwaterError] = {}  # connections that cannot be used now, and why
        missing: dict[str, HeadwaterError] = {}  # the same for tables and views
        for step in self._waiting:
            refusal = self._try(step, away, missing)
            if refusal is None:
                continue
            refused.append(refusal)
            missing.update(dict.fromkeys(_made(step), refusal.error))
        self.refused = tuple(refused)
        self._waiting = [r.step for r in refused]
        self._pause_s = RETRY.after(self._pause_s)
        self._retry_at = time.monotonic() + self._pause_s

    def apply_if_due(self) -> None:
        """Retries transient failures (an upstream that does not answer), at growing intervals."""
        if any(r.error.retry is Retry.AUTO for r in self.refused) and time.monotonic() >= self._retry_at:
            self.apply()
            self.tell()

    def tell(self) -> None:
        """Reports each failure once, one line each: a server may run for months before the list at its end."""
        for refusal in self.refused:
            text = f"{refusal.step.location}: {_first(refusal.error)}; everything else continues"
            if not refusal.needs and text not in self._reported:
                self._reported.add(text)
                self._say(text)

    def cause(self) -> HeadwaterError | None:
        """The one cause of all failures, if there is only one; otherwise `error()`."""
        if len({id(r.error) for r in self.refused}) != 1:
            return self.error()
        first = self.refused[0]
        return first.error.reworded(f"{first.step.location}: {first.error.message}")

    def error(self, failed: Sequence[tuple[str, HeadwaterError]] = ()) -> HeadwaterError | None:
        """One error for all failed steps: each with its line, reason and hint.

        `failed` are connections and tables that have stopped since; they are listed too.
        """
        if not self.refused:
            return None
        verb = "was" if len(self.refused) == 1 else "were"
        head = f"{len(self.refused)} of {self._total} statements {verb} not executed:"
        return HeadwaterError(
            "sql.refused",
            "\n".join([head, *_lines(self.refused), *_stopped(failed)]),
            "Do what each line says, then run the same file again (`headwater sql -f FILE` while a server runs).",
        )

    def _try(self, step: Step, away: dict[str, HeadwaterError], missing: dict[str, HeadwaterError]) -> Refusal | None:
        if isinstance(step.statements[0] if step.statements else None, QUESTIONS):
            self._say(f"{step.location}: `run` only takes definitions; use `headwater sql` for this")
            self._total -= 1
            return None
        for name in _connections(step, st.CreateTable):
            if name in away:
                return Refusal(step, away[name], name)
        try:
            results = self._carry_out(step)
        except FencedError:
            raise
        except HeadwaterError as e:
            away.update(dict.fromkeys(_connections(step, st.CreateConnection), e))
            if e.retry is Retry.AUTO:  # the next table of a silent upstream would wait just as long for the same error
                away.update(dict.fromkeys(_connections(step, st.CreateTable), e))
            needed = [name for name in _named(step) if name in missing] if e.code == "name.unknown" else []
            return Refusal(step, missing[needed[0]], needed[0]) if needed else Refusal(step, e)
        for result in results:
            for warning in result.warnings:
                self._say(f"{step.location}: {warning}")
        if self.refused:
            self._say(f"{step.location}: {', '.join(r.message for r in results)}")
        return None


def _lines(refused: Sequence[Refusal]) -> Iterator[str]:
    for refusal in refused:
        if refusal.needs:
            continue
        yield f"{refusal.step.location}: {_first(refusal.error)}"
        if refusal.error.hint:
            yield f"  → {refusal.error.hint}"
        needed = [r.step.location for r in refused if r.needs and r.error is refusal.error]
        if needed:
            more = f" and {len(needed) - 5} more" if len(needed) > 5 else ""
            yield f"  the same applies to {', '.join(needed[:5])}{more}: they need what it defines"


def _stopped(failed: Sequence[tuple[str, HeadwaterError]]) -> Iterator[str]:
    for name, error in failed:
        yield f"{name} has failed: {_first(error)}"
        if error.hint:
            yield f"  → {error.hint}"


def _first(error: HeadwaterError) -> str:
    return f"{error.message.splitlines()[0] if error.message else ''} ({error.code})"


def _made(step: Step) -> list[str]:
    """The tables and views that a step creates, in lower case."""
    kinds = st.CreateTable | st.CreateView | st.CreateMaterializedView
    return [s.name.lower() for s in step.statements if isinstance(s, kinds)]


def _named(step: Step) -> list[str]:
    """What the views of a step may name, in lower case, besides what it creates itself."""
    made = set(_made(step))
    views = (s for s in step.statements if isinstance(s, st.CreateView | st.CreateMaterializedView))
    return sorted({name for s in views for name in s.query.identifiers} - made)


def _connections(step: Step, kind: type[st.CreateTable] | type[st.CreateConnection]) -> list[str]:
    """The connections that a step creates, or those that its tables use but it does not create itself."""
    made = [s.name.lower() for s in step.statements if isinstance(s, st.CreateConnection)]
    if kind is st.CreateConnection:
        return made
    used = (s.connection.lower() for s in step.statements if isinstance(s, st.CreateTable))
    return [name for name in used if name not in made]
