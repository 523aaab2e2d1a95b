"""The envelope around every command: streams, errors as text or envelope, exit statuses."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headwater import config
from headwater.cli import render
from headwater.errors import HeadwaterError, InputError

FAILED, INPUT, INTERRUPTED = 1, 2, 130


@dataclass(slots=True)
class Reply:
    """What a command returns: `result` for the envelope; `ok` False exits with 1."""

    result: Any = None
    ok: bool = True


@contextlib.contextmanager
def around(command: str, as_json: bool, home: str | None) -> Iterator[Reply]:
    """Runs a command; its result or error becomes one JSON envelope, or its error text on stderr."""
    reply = Reply()
    try:
        yield reply
    except HeadwaterError as e:
        if as_json:
            _print_json({"ok": False, "command": command, "error": e.as_dict()})
        else:
            render.console(sys.stderr).print(render.error(e))
        raise typer.Exit(e.exit_status) from e
    except (typer.Exit, typer.Abort, KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as e:
        where = write_report(e, config.home_from(home))
        if as_json:
            error = {"code": "unexpected", "message": _first_line(e), "hint": f"The report is in {where}."}
            _print_json({"ok": False, "command": command, "error": error})
        else:
            say_unexpected(e, where)
        raise typer.Exit(FAILED) from e
    if as_json:
        _print_json({"ok": reply.ok, "command": command, "result": reply.result})
    if not reply.ok:
        raise typer.Exit(FAILED)


def guarded(work: Callable[[], Any]) -> int:
    """Runs the program and turns its outcome into an exit status; never a stack trace."""
    try:
        status = work()
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except HeadwaterError as e:
        render.console(sys.stderr).print(render.error(e))
        return e.exit_status
    except typer.TyperException as e:
        problem = InputError(
            "input.usage", e.format_message(), "Run `headwater --help`, or `headwater COMMAND --help`."
        )
        if e.format_message():
            render.console(sys.stderr).print(render.error(problem))
        return INPUT
    except Exception as e:
        say_unexpected(e, write_report(e, config.home_from(None)))
        return FAILED


def say_unexpected(error: Exception, where: Path) -> None:
    """Shows an error that has no code: short on the screen, in full in a file."""
    out = render.console(sys.stderr)
    out.print(f"✗ unexpected: {render.visible(_first_line(error))}")
    out.print(f"  → Please report it with {where}.")


def write_report(error: Exception, home: Path) -> Path:
    """Writes the stack trace to the home's logs, or to a temporary file if there is no home; returns the path."""
    from headwater.engine.home import is_home  # needed only here, and slow to load

    text = "".join(traceback.format_exception(error))
    try:
        logs = home / "logs"
        if not is_home(home):
            raise FileNotFoundError(home)
        logs.mkdir(exist_ok=True)
        path = logs / "unexpected.log"
        with path.open("a", encoding="utf-8") as f:
            f.write(text + "\n")
    except OSError:
        fd, name = tempfile.mkstemp(prefix="headwater-", suffix=".log")
        path = Path(name)
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.write(text)
    return path


def read_text(path: str) -> str:
    """A file of statements as text."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError("input.file", f"cannot read {path}: {e.strerror}", "Give the path of a readable file.") from e
    except UnicodeDecodeError as e:
        raise InputError("input.file", f"{path} is not UTF-8 text", "Save the file as UTF-8.") from e


def prepare_streams() -> None:
    """Makes a terminal without UTF-8 show marks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
