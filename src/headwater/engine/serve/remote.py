"""Both ends of the protocol: `answer` in the server, `Remote` in a command. Same methods, same values."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from headwater.engine.results import Result, Status, Verified
from headwater.engine.running import AS_IT_IS, Wanted
from headwater.engine.serve.wire import Message, answers, call
from headwater.errors import MachineError
from headwater.rundir import SOCKET
from headwater.settings.load import Given
from headwater.settings.table import Line


class Answering(Protocol):
    """The requests that a home's facade answers, directly or through its server."""

    def ask(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        """Runs the statements of a text in order; `wanted` applies to its queries."""
        ...

    def verify(self, table: str | None = None) -> list[Verified]:
        """Compares a table (or all) with the upstream at one cut."""
        ...

    def status(self) -> Status:
        """The status of everything, without contacting an upstream."""
        ...

    def settings(self) -> list[Line]:
        """Every setting with its effective value."""
        ...

    def given(self) -> Given:
        """What its command line, or the program that opened it, sets."""
        ...


class Remote:
    """The server of a home, reached through its socket."""

    def __init__(self, home: Path) -> None:
        self._path = home / SOCKET

    def ask(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        reply = call(self._path, {"do": "sql", "text": text, **asdict(wanted)})
        tables = iter(reply.tables)
        return [Result.of(r, next(tables) if r["has_rows"] else None) for r in reply.value]

    def verify(self, table: str | None = None) -> list[Verified]:
        return [Verified.of(v) for v in call(self._path, {"do": "verify", "table": table}).value]

    def status(self) -> Status:
        return Status.of(call(self._path, {"do": "status"}).value)

    def settings(self) -> list[Line]:
        return [Line.of(v) for v in call(self._path, {"do": "settings"}).value]

    def given(self) -> Given:
        return Given(**call(self._path, {"do": "given"}).value)

    def close(self) -> None:
        """Does nothing: each request has its own connection."""


def find(home: Path) -> Remote | None:
    """The server that runs on a home, or None."""
    return Remote(home) if answers(home / SOCKET) else None


def answer(engine: Answering, request: Message) -> Message:
    """The engine's reply to a Remote's request; pass it to `wire.serve`."""
    asked = request.value
    match asked.get("do"):
        case "sql":
            results = engine.ask(asked["text"], Wanted.of(asked))
            headers = [{**r.header(), "has_rows": r.rows is not None} for r in results]
            return Message(headers, tuple(r.rows for r in results if r.rows is not None))
        case "verify":
            return Message([v.as_dict() for v in engine.verify(asked.get("table"))])
        case "status":
            return Message(engine.status().as_dict())
        case "settings":
            return Message([line.as_dict() for line in engine.settings()])
        case "given":
            given = engine.given()
            return Message({"file": given.file, "values": dict(given.values)})
        case other:
            raise MachineError(
                "server.unreachable",
                f"the running server does not support the request {other!r}",
                "Restart `headwater run`: its version differs from this command's.",
            )
