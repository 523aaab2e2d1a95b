"""The command line: verbs, screens and exit statuses.

In: arguments, a file, a terminal. Out: text, and 0 done, 1 failed, 2 wrong input or 3 the machine lacks something.
Promises: results on stdout, everything else on stderr; no stack trace, ever; each error with its way out.
Never: knowledge of the engine. It asks the facade, or the server that runs on the home.

`app` the commands · `frame` errors and envelopes · `reach` the home · `render`, `values` results as text
· `screen` progress of a run · `sql`, `shell`, `run`, `verify`, `status`, `demo` one command each.
"""

from headwater.cli.app import main

__all__ = ["main"]
