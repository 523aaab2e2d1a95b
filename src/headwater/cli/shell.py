"""The interactive shell: statements end with `;`, Ctrl-C clears the line, Ctrl-D exits."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater import __version__
from headwater.cli import envelope, render
from headwater.cli.sql import Printer, run_statements
from headwater.engine.home import is_home
from headwater.engine.running import Wanted
from headwater.engine.serve.remote import Answering
from headwater.errors import HeadwaterError
from headwater.sql.parse import complete, parse

PROMPT, MORE = "headwater> ", "        -> "
HISTORY = 1_000
HELP = """\
Statements end with ;        SELECT …, SHOW TABLES, SHOW CONNECTIONS, DESCRIBE t, EXPLAIN SELECT …
Ctrl-C clears what you typed, or cancels the running query
Ctrl-D, exit or quit exits   help shows this"""


def shell(engine: Answering, home: Path, printer: Printer, wanted: Wanted) -> None:
    """Reads and runs statements until the end of the input. An error ends a statement, never the shell."""
    out, err = render.console(sys.stdout), render.console(sys.stderr)
    out.print(f"headwater {__version__} on {home}. Statements end with ; and help shows more.")
    if not is_home(home):
        out.print("There is no home yet; CREATE CONNECTION creates one.")
    with _history(home):
        for text in statements(input):
            if text == "help":
                out.print(HELP)
                continue
            try:
                run_statements(engine, parse(text), printer, wanted)
            except HeadwaterError as e:
                err.print(render.error(e))
            except KeyboardInterrupt:
                err.print("cancelled")
            except Exception as e:
                envelope.say_unexpected(e, envelope.write_report(e, home))


def statements(read: Callable[[str], str]) -> Iterator[str]:
    """The texts that a user types, each with its `;`, until the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = read(MORE if lines else PROMPT)
        except KeyboardInterrupt:
            print()
            lines = []
            continue
        except EOFError:
            print()
            return
        if not lines and not line.strip():
            continue
        word = line.strip().rstrip(";").lower()
        if not lines and word in ("exit", "quit", "\\q"):
            return
        if not lines and word in ("help", "\\h", "\\?", "?"):
            yield "help"
            continue
        lines.append(line)
        text = "\n".join(lines)
        if complete(text):
            lines = []
            yield text


@contextlib.contextmanager
def _history(home: Path) -> Iterator[None]:
    """Line editing with a history in the home. Lines with a password are not saved."""
    try:
        import readline
    except ImportError:  # without readline the shell still works
        yield
        return
    path = home / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY)
    try:
        yield
    finally:
        for i in range(readline.get_current_history_length(), 0, -1):
            if "password" in (readline.get_history_item(i) or "").lower():
                readline.remove_history_item(i - 1)
        if is_home(home):  # any other directory stays as it is
            with contextlib.suppress(OSError):
                path.touch(mode=0o600)
                readline.write_history_file(path)
