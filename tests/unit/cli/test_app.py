"""Commands as programs: what is on stdout and stderr, and the exit status. The home's server is one from memory."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.cli import envelope
from headwater.cli.app import app
from headwater.cli.shell import MORE, PROMPT, statements
from headwater.engine.home import Home
from headwater.engine.results import Behind, Result, Status, TableStatus, Verified
from headwater.engine.running import AS_IT_IS, Wanted
from headwater.engine.serve import remote, wire
from headwater.errors import DefinitionError, MachineError, QueryError
from headwater.rundir import SOCKET

PROGRAM = (sys.executable, "-c", "from headwater.cli import main; main()")


class Engine:
    """A server that knows one table."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, text: str, wanted: Wanted = AS_IT_IS) -> list[Result]:
        self.asked.append(text)
        if wanted.max_age_s is not None:
            told = f"{wanted.max_age_s:g} s allowed, {wanted.timeout_s:g} s given"
            raise QueryError("query.stale", f"shop: 12 min behind, {told}", "See.")
        if wanted.fresh:
            raise QueryError("view.not_fresh", "revenue did not catch up", "See.")
        if "old" in text:
            return [Result(behind=(Behind("shop", 720.0, "source.unreachable"),))]
        if wanted.require_complete:
            raise DefinitionError("table.incomplete", "orders: 43 % covered", "Wait.")
        if text.startswith("SELECT"):
            rows = pa.table({"n": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))})
            return [Result(("n",), ("DECIMAL(5,2)",), rows, warnings=("orders: 43 % covered",))]
        if text.startswith("DESCRIBE"):
            raise RuntimeError("a defect")
        return [Result(message="done")]

    def verify(self, table: str | None = None) -> list[Verified]:
        if table == "nobody":
            raise MachineError("spark.no_java", "no java", "Install Java.")
        return [Verified("orders", table is None, 10, 10, "0/1", differences=1, different=("7",))]

    def status(self) -> Status:
        return Status("h", 1, 2, tables=(TableStatus("orders", "live", covered=1.0),))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    known = Engine()
    listener = wire.serve(tmp_path / SOCKET, lambda m: remote.answer(known, m))
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path))
    yield known
    listener.close()


def headwater(*arguments: str) -> int:
    return envelope.guarded(lambda: app(list(arguments), standalone_mode=False, prog_name="headwater"))


def test_rows_go_to_stdout_and_warnings_to_stderr(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "--format", "json", "-c", "SELECT n FROM orders") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [{"n": "1.50"}, {"n": None}]
    assert err == "⚠ orders: 43 % covered\n"


def test_an_old_answer_says_so_and_may_be_refused(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "-c", "SELECT 1 AS old") == 0
    assert capsys.readouterr() == ("", "⚠ shop: 12 min behind: source.unreachable\n")
    assert headwater("sql", "--max-age", "1m", "--timeout", "500ms", "-c", "SELECT 1") == 1
    err = capsys.readouterr().err
    assert "60 s allowed, 0.5 s given" in err and "query.stale" in err
    assert headwater("sql", "--max-age", "soon", "-c", "SELECT 1") == 2
    said = capsys.readouterr().err
    assert "--max-age must be a duration from 0.001 to 2,592,000 seconds" in said


def test_fresh_views_can_be_asked_for(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "--fresh", "-c", "SELECT 1 AS old") == 1
    assert "view.not_fresh" in capsys.readouterr().err


def test_results_are_printed_as_csv_or_as_a_table(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "--format", "csv", "-c", "SELECT 1") == 0
    assert capsys.readouterr().out.splitlines() == ["n", "1.50", ""]
    assert headwater("sql", "-c", "SELECT 1; DROP TABLE x") == 0
    out = capsys.readouterr().out
    assert "NULL" in out and "2 rows" in out and "✓ done" in out


def test_json_without_rows_is_an_empty_array(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "--format", "json", "-c", "DROP TABLE x; -- no more") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("[]\n", "✓ done\n")


def test_statements_come_from_a_file_or_a_pipe(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.sql"
    file.write_text("\ufeffSHOW TABLES;\nSELECT ';' // x\n;", encoding="utf-8")
    assert headwater("sql", "-f", str(file)) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW EPOCHS"))
    assert headwater("sql") == 0
    assert engine.asked == ["SHOW TABLES", "SELECT ';'", "SHOW EPOCHS"]


def test_a_block_is_sent_as_one(engine: Engine) -> None:
    text = "SHOW TABLES; BEGIN; CREATE TABLE a FROM CONNECTION c; CREATE TABLE b FROM CONNECTION c; COMMIT; SHOW EPOCHS"
    assert headwater("sql", "-c", text) == 0
    assert [len(t.split(";")) for t in engine.asked] == [1, 4, 1]


def test_a_typo_at_the_end_changes_nothing(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "-c", "DROP TABLE x;\nSELCT 1") == 2
    assert engine.asked == []
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "✗ line 2, column 1: expected a statement, found 'SELCT'",
        "    SELCT 1",
        "    ^",
        "  → Did you mean SELECT?",
        "    sql.syntax",
    ]


def test_the_statement_that_failed_is_named_and_how_many_were_not_reached(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.sql"
    file.write_text("SHOW TABLES;\n\nDESCRIBE\n t;\nSHOW EPOCHS;\nSHOW EPOCHS;")
    assert headwater("sql", "-f", str(file)) == 1
    err = capsys.readouterr().err
    assert "⚠ line 3 failed; 2 later statements not executed\n✗ unexpected: RuntimeError: a defect" in err
    assert headwater("sql", "-c", "DESCRIBE t") == 1
    assert "line 1" not in capsys.readouterr().err, "there is nothing to tell it from"


def test_each_error_has_its_exit_status(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "--require-complete", "-c", "SELECT 1") == 2
    assert headwater("verify", "nobody") == 3
    assert headwater("verify", "orders") == 1
    assert headwater("verify") == 0
    assert headwater("status") == 0
    assert headwater("dance") == headwater("sql", "--wrong") == headwater("sql", "--format", "xml") == 2
    assert headwater("sql", "-c", "SELECT 1", "-f", "x") == headwater("sql", "-f", "missing.sql") == 2
    assert "Traceback" not in "".join(capsys.readouterr())


def test_without_a_command_the_help_is_shown_and_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater() == 0
    shown = capsys.readouterr()
    assert headwater("--help") == 0
    assert shown.out == capsys.readouterr().out and "Commands" in shown.out
    assert shown.err == ""


def test_a_defect_is_reported_without_a_stack_trace(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("sql", "-c", "DESCRIBE t") == 1
    err = capsys.readouterr().err
    assert "✗ unexpected: RuntimeError: a defect" in err and "Traceback" not in err


def test_an_unexpected_error_here_leaves_a_report(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("not so good\nsecond line")

    monkeypatch.setattr("headwater.cli.status.report", broken)
    assert headwater("status") == 1
    err = capsys.readouterr().err
    report = tmp_path / "logs" / "unexpected.log"
    assert err == f"✗ unexpected: ValueError: not so good\n  → Please report it with {report}.\n"
    assert "Traceback" in report.read_text()


def test_json_is_one_envelope(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("status", "--json") == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["ok"], reply["command"], reply["result"]["tables"][0]["name"]) == (True, "status", "orders")
    assert headwater("verify", "nobody", "--json") == 3
    reply = json.loads(capsys.readouterr().out)
    assert (reply["ok"], reply["error"]["code"]) == (False, "spark.no_java")
    assert headwater("verify", "orders", "--json") == 1
    reply = json.loads(capsys.readouterr().out)
    assert reply["ok"] is False and reply["result"][0]["different"] == ["7"]


def test_the_program_itself_starts_and_ends_with_the_status() -> None:
    asked = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout.split()[0]) == (0, "headwater")
    wrong = subprocess.run([*PROGRAM, "sql", "-c", "selct"], capture_output=True, check=False, env={"LC_ALL": "C"})
    assert wrong.returncode == 2 and b"Traceback" not in wrong.stderr


def test_a_metrics_port_that_is_taken_is_reported_and_nothing_claims_to_be_served_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        file = tmp_path / "empty.sql"
        file.write_text("-- nothing yet\n")
        command = [*PROGRAM, "run", str(file), "--home", str(tmp_path / "home"), "--metrics-port", port]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == MachineError.exit_status, asked.stderr
    assert "Traceback" not in asked.stderr
    assert f"cannot serve metrics on port {port}" in asked.stderr and "metrics at" not in asked.stderr


def test_a_mistyped_home_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert headwater("run", "--home", str(tmp_path / "typo")) == MachineError.exit_status
    assert "home.missing" in capsys.readouterr().err and not (tmp_path / "typo").exists()


def test_status_and_verify_take_the_settings_that_name_the_meta(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[meta]\nurl = 'env:NO_SUCH_VARIABLE'\n")
    Home.open(tmp_path / "home").meta.close()
    home = ("--home", str(tmp_path / "home"))
    for given in (("--config", str(file)), ("--set", "meta.url=env:NO_SUCH_VARIABLE")):
        for command in (("status", "--once"), ("verify",)):
            assert headwater(*command, *given, *home) == DefinitionError.exit_status
            assert "NO_SUCH_VARIABLE is not set" in capsys.readouterr().err
    assert headwater("status", "--once", *home) == 0


def test_the_shell_reads_until_a_statement_ends() -> None:
    lines = iter(["", "SELECT 1", "  , ';'", ";", "help", None, "dropped", KeyboardInterrupt, "SHOW TABLES;", "quit"])
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        line = next(lines)
        if line is None:
            return ""
        if isinstance(line, type):
            raise line
        return line

    assert list(statements(read)) == ["SELECT 1\n  , ';'\n;", "help", "SHOW TABLES;"]
    assert prompts[:4] == [PROMPT, PROMPT, MORE, MORE]


def test_the_shell_ends_with_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    def end(prompt: str) -> str:
        raise EOFError

    assert list(statements(end)) == []


RUNNER = """
import sys, time, signal
from headwater.cli import run as command, envelope
from headwater.errors import HeadwaterError
class Home:
    def require(self, text):
        pass
    def run(self, text, *, once, fold, progress, **options):
        try:
            progress([])
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does when it starts
            progress([])
            print("running", flush=True)
            while True:
                time.sleep(0.05)
        finally:
            print("cleaning", flush=True)
            time.sleep(float(sys.argv[1]))
            print("clean", flush=True)
    def refused(self):
        if len(sys.argv) > 2:
            return HeadwaterError("sql.refused", "1 of 2 statements was not executed:", "Run it again.")
    def close(self):
        print("closed", flush=True)
command.open_home = lambda *_: Home()
from headwater.cli.app import app
sys.exit(envelope.guarded(lambda: app(["run"], standalone_mode=False)))
"""


def _started(cleaning_s: float, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(cleaning_s), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "running\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_cleanly_with_0(number: signal.Signals) -> None:
    process = _started(0)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "cleaning\nclean\nclosed\n")
    assert "stopping …" in err and "✓ stopped; the next start continues here" in err


def test_a_run_that_left_statements_out_says_so_when_it_is_stopped_and_ends_with_1() -> None:
    process = _started(0, "refused")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.index("✓ stopped") < err.index("✗ 1 of 2 statements was not executed:") < err.index("→ Run it again.")


def test_impatience_does_not_break_a_clean_stop_until_the_third_time() -> None:
    process = _started(60)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline() == "cleaning\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "still stopping" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
