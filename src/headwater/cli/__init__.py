"""The command line: verbs, screens and exit statuses.

In: arguments, a file, a terminal. Out: text, and 0 success, 1 failure, 2 invalid input or 3 a problem with the machine.
Guarantees: results on stdout, everything else on stderr; never a stack trace; every error comes with a hint.
Never: knowledge of the engine. It asks the facade, or the server that runs on the home.

`app` the commands · `envelope` errors and envelopes · `reach` the home · `render`, `lines`, `values`, `words` results
as text · `screen` progress of a run · `sql`, `shell`, `run`, `verify`, `status`, `settings`, `demo` one command each.
"""

import sys


def main() -> None:
    """The program `headwater`: runs the command line and exits with its status."""
    try:
        from headwater.cli.app import main as carry_out  # takes a second, in which Ctrl-C must not print a stack trace
    except KeyboardInterrupt:
        sys.exit(130)
    carry_out()


__all__ = ["main"]
