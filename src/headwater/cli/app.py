"""The commands and their options; each is implemented in the module of its name."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

from headwater import __version__, config
from headwater.cli import envelope
from headwater.settings.load import Given

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Live PostgreSQL, MySQL and MariaDB tables in a Delta lake: exact, lock-free, fresh to the second.",
)

Home = Annotated[
    str | None,
    typer.Option(
        "--home", metavar="DIR", help=f"Home directory [default: HEADWATER_HOME, else {config.DEFAULT_HOME}]."
    ),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Settings file [default: HEADWATER_CONFIG, else the home's]."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting for this command; repeatable.")
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs; the same as --set spark.master=URL.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON envelope instead of text.")]


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def run(
    file: Annotated[str | None, typer.Argument(metavar="[FILE.sql]", help="Definitions to apply first.")] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when every table and view has caught up with the upstream.")
    ] = False,
    until: Annotated[
        str, typer.Option("--until", metavar="POSITION|TIMESTAMP", help="Exit at this point in the upstream's log.")
    ] = "",
    no_fold: Annotated[bool, typer.Option("--no-fold", help="With --once, --until: skip the final fold.")] = False,
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", metavar="N", min=0, max=65535, help="Serve /metrics on 127.0.0.1; 0: off.")
    ] = 0,
    master: Master = None,
    set: Set = None,
    config_file: Config = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Apply definitions and keep their tables fresh."""
    from headwater.cli.run import run as carry_out

    with envelope.around("run", json, home) as reply:
        reply.result = carry_out(
            file,
            config.home_from(home),
            once=once,
            fold=not no_fold,
            metrics_port=metrics_port,
            quiet=json,
            until=until,
            given=Given.of(config_file, set, master),
        )


@app.command()
def sql(
    command: Annotated[str | None, typer.Option("--command", "-c", metavar="SQL", help="Statements to run.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", metavar="FILE", help="File of statements to run.")] = None,
    format: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="Fail if a table is still being filled.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Cancel a query that takes longer (30s, 5m).")
    ] = "",
    max_age: Annotated[
        str,
        typer.Option("--max-age", metavar="DURATION", help="Fail if a table is further behind its upstream than this."),
    ] = "",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Wait until views hold what is published now, for a minute at most.")
    ] = False,
    master: Master = None,
    set: Set = None,
    config_file: Config = None,
    home: Home = None,
) -> None:
    """Run statements at the newest epoch; start a shell when given none."""
    from headwater.cli.sql import run_sql, wanted_of

    with envelope.around("sql", False, home):
        wanted = wanted_of(require_complete, timeout, max_age, fresh)
        given = Given.of(config_file, set, master)
        run_sql(command, file, config.home_from(home), format=str(format), wanted=wanted, given=given)


@app.command()
def verify(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One table [default: all].")] = None,
    master: Master = None,
    set: Set = None,
    config_file: Config = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare the lake with the upstream at one cut."""
    from headwater.cli.verify import verify as carry_out

    with envelope.around("verify", json, home) as reply:
        given = Given.of(config_file, set, master)
        reply.result, reply.ok = carry_out(table, config.home_from(home), quiet=json, given=given)


@app.command()
def status(
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit, even on a terminal.")] = False,
    set: Set = None,
    config_file: Config = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the state of connections and tables."""
    from headwater.cli.status import status as carry_out

    with envelope.around("status", json, home) as reply:
        given = Given.of(config_file, set, None)
        reply.result = carry_out(config.home_from(home), once=once, quiet=json, given=given)


@app.command()
def settings(
    master: Master = None,
    set: Set = None,
    config_file: Config = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show every setting, its value and its origin."""
    from headwater.cli.settings import settings as carry_out

    with envelope.around("settings", json, home) as reply:
        reply.result = carry_out(config.home_from(home), Given.of(config_file, set, master), quiet=json)


class Upstreams(StrEnum):
    """The databases that the demo can run on."""

    POSTGRES = "postgres"
    MYSQL = "mysql"


@app.command()
def demo(
    source: Annotated[Upstreams, typer.Option("--source", help="The database to run on.")] = Upstreams.POSTGRES,
    keep: Annotated[bool, typer.Option("--keep", help="Stay up until Ctrl-C and keep the home.")] = False,
    home: Home = None,
) -> None:
    """Run a guided demo: a real database, a busy shop and its lake."""
    from headwater.cli.demo import demo as carry_out

    with envelope.around("demo", False, home):
        carry_out(source.value, home, keep=keep)


@app.command()
def setup() -> None:
    """Download Delta's jars and compile the kernels, once after installing."""
    from headwater.engine.spark.setup import main as carry_out

    raise typer.Exit(carry_out())


def main() -> None:
    """The program `headwater`: runs the command line and exits with its status."""
    envelope.prepare_streams()
    # py4j logs a dead JVM through the root logger, which without a handler gets one that prints everything to stderr;
    # our own log is in the home's journal
    logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(envelope.guarded(lambda: app(standalone_mode=False, prog_name="headwater")))
