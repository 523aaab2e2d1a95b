"""What people and programs see of results and errors."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.cells import cell_len
from rich.console import Console, RenderableType

from headwater.cli import lines, render
from headwater.cli.lines import line
from headwater.cli.screen import Screen, overview, short, size
from headwater.cli.status import report as status_report
from headwater.cli.status import watch
from headwater.cli.values import distinct_names, plain
from headwater.cli.verify import _said_once
from headwater.cli.verify import report as verify_report
from headwater.engine.results import ConnectionStatus, Result, Status, TableStatus, Verified
from headwater.errors import MachineError, SourceError, SqlError


def result(columns: dict[str, tuple[str, pa.Array]]) -> Result:
    rows = pa.table({name: array for name, (_, array) in columns.items()})
    return Result(tuple(columns), tuple(t for t, _ in columns.values()), rows)


def text(shown: RenderableType, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(shown)
    return "\n".join(part.rstrip() for part in out.getvalue().splitlines())


def json_of(r: Result) -> Any:
    out = io.StringIO()
    render.write_json(r, out)
    return json.loads(out.getvalue())


def one_value(array: pa.Array) -> Any:
    return plain(array)[0]


def test_json_is_one_array_of_row_objects_with_exact_values() -> None:
    r = result(
        {
            "d": ("DECIMAL(38,10)", pa.array([Decimal("12345678901234567890.1000000000")], pa.decimal128(38, 10))),
            "small": ("DECIMAL(9,8)", pa.array([Decimal("0.00000001")], pa.decimal128(9, 8))),
            "t": ("TIMESTAMP", pa.array([datetime(2024, 2, 29, 1, 2, 3, 4, UTC)], pa.timestamp("us", "UTC"))),
            "n": ("TIMESTAMP_NTZ", pa.array([datetime(2024, 2, 29)], pa.timestamp("us"))),
            "day": ("DATE", pa.array([date(2024, 2, 29)])),
            "b": ("BINARY", pa.array([b"\x00\xff"])),
            "x": ("DOUBLE", pa.array([float("nan")])),
            "y": ("DOUBLE", pa.array([float("-inf")])),
            "f": ("FLOAT", pa.array([0.1], pa.float32())),
            "i": ("BIGINT", pa.array([2**63 - 1])),
            "nil": ("STRING", pa.array([None], pa.string())),
            "a": ("ARRAY<DECIMAL(3,1)>", pa.array([[Decimal("1.5"), None]], pa.list_(pa.decimal128(3, 1)))),
        }
    )
    assert json_of(r) == [
        {
            "d": "12345678901234567890.1000000000",
            "small": "0.00000001",
            "t": "2024-02-29T01:02:03.000004Z",
            "n": "2024-02-29T00:00:00",
            "day": "2024-02-29",
            "b": "AP8=",
            "x": "NaN",
            "y": "-Infinity",
            "f": 0.1,
            "i": 2**63 - 1,
            "nil": None,
            "a": ["1.5", None],
        }
    ]


def test_json_of_no_rows_is_an_empty_array() -> None:
    assert json_of(result({"a": ("INT", pa.array([], pa.int32()))})) == []


def test_columns_of_the_same_name_are_all_kept() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "a_2"])
    assert json_of(Result(("a", "a", "a_2"), ("INT", "INT", "INT"), rows)) == [{"a": 1, "a_2": 2, "a_2_2": 3}]
    assert distinct_names(("a", "b")) == ["a", "b"]


def test_years_that_python_cannot_hold_are_shown() -> None:
    assert one_value(pa.array([2932897], pa.date32())) == "+10000-01-01"
    assert one_value(pa.array([-719529], pa.date32())) == "-0001-12-31"
    assert one_value(pa.array([253402300800000000], pa.timestamp("us"))) == "+10000-01-01T00:00:00"


def test_nested_values_are_followed() -> None:
    structs = pa.array([{"a": {"d": Decimal("1.0")}, "l": [b"x"]}, None])
    assert plain(structs) == [{"a": {"d": "1.0"}, "l": ["eA=="]}, None]
    maps = pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float64()))
    assert plain(maps) == [{"k": 1.5}, None]
    assert plain(pa.array([[1], [2, 3], None, []]).slice(1)) == [[2, 3], None, []]


@given(some.lists(some.one_of(some.none(), some.lists(some.one_of(some.none(), some.integers(-9, 9))))))
def test_slices_of_lists_keep_their_own_values(values: list[list[int | None] | None]) -> None:
    array = pa.array(values, pa.list_(pa.int64()))
    for i in range(len(values) + 1):
        assert plain(array.slice(i)) == values[i:]


@given(some.lists(some.tuples(some.one_of(some.none(), some.text()), some.one_of(some.none(), some.text()))))
def test_csv_tells_null_from_empty_and_is_read_back(rows: list[tuple[str | None, str | None]]) -> None:
    table = pa.table(
        {"a": pa.array([r[0] for r in rows], pa.string()), "b": pa.array([r[1] for r in rows], pa.string())}
    )
    out = io.StringIO(newline="")
    render.write_csv(Result(("a", "b"), ("STRING", "STRING"), table), out)
    body = out.getvalue()
    read = list(csv.reader(io.StringIO(body, newline="")))
    assert read == [["a", "b"], *[[a or "", b or ""] for a, b in rows]]


def test_csv_ends_each_line_with_a_line_feed_and_shows_null_as_nothing() -> None:
    out = io.StringIO(newline="")
    table = pa.table({"a": pa.array([None], pa.string()), "b": pa.array([""])})
    render.write_csv(Result(("a", "b"), ("STRING", "STRING"), table), out)
    assert out.getvalue() == 'a,b\n,""\n'


def test_a_table_puts_numbers_right_and_shows_null() -> None:
    r = result({"status": ("STRING", pa.array(["new", None])), "n": ("BIGINT", pa.array([5, 1234]))})
    lines = text(render.table(r)).splitlines()
    assert lines[2].startswith("new") and lines[2].endswith("    5")
    assert lines[3].startswith("NULL") and lines[3].endswith(" 1234")
    assert lines[-1] == "2 rows"


def test_a_table_that_has_no_room_for_its_columns_shows_its_rows_one_below_the_other() -> None:
    r = result({f"a_long_name_{i}": ("INT", pa.array([i, None])) for i in range(12)})
    narrow = text(render.table(r), 80).splitlines()
    assert narrow[0] == "── row 1 ──" and narrow[1].split() == ["a_long_name_0", "0"] and narrow[-1] == "2 rows"
    assert narrow[13] == "── row 2 ──" and narrow[14].split() == ["a_long_name_0", "NULL"]
    assert text(render.table(r), 400).splitlines()[0].split() == [f"a_long_name_{i}" for i in range(12)]


def test_a_value_cannot_command_the_terminal() -> None:
    r = result({"x": ("STRING", pa.array(["a\x1b[31mred\nb\u202ec"]))})
    shown = text(render.table(r))
    assert "\x1b" not in shown and "\u202e" not in shown and "\\x1b[31mred\n" in shown


def test_a_single_text_of_several_lines_is_printed_as_it_is() -> None:
    r = result({"statement": ("STRING", pa.array(["CREATE TABLE t (\n    a int\n);"]))})
    assert text(render.table(r)) == "CREATE TABLE t (\n    a int\n);"


def test_a_long_result_says_that_it_is_cut() -> None:
    r = result({"x": ("INT", pa.array(range(2_500)))})
    assert "2,500 rows, the first 1,000 shown" in text(render.table(r))


def test_an_error_shows_message_place_hint_and_code() -> None:
    e = SqlError("sql.syntax", "line 2, column 5: expected X", "Write X.", line=2, column=5, text="\tabécd")
    assert text(render.error(e)).splitlines() == [
        "✗ line 2, column 5: expected X",
        "     abécd",
        "        ^",
        "  → Write X.",
        "    sql.syntax",
    ]


def test_the_caret_stands_under_the_place_in_long_and_wide_lines() -> None:
    for shown in ("x" * 300 + "!" + "y" * 300, "名前" * 20 + "!"):
        column = shown.index("!") + 1
        lines = text(
            render.error(SqlError("sql.syntax", "m", "h.", line=1, column=column, text=shown)), 400
        ).splitlines()
        assert cell_len(lines[1][: lines[1].index("!")]) == lines[2].index("^")


def test_an_error_of_several_lines_keeps_them() -> None:
    shown = text(render.error(SourceError("source.failed", "name taken\n- a\n+ b", "Do.")))
    assert shown.splitlines()[:3] == ["✗ name taken", "  - a", "  + b"]


FILLING = TableStatus(
    *("orders", "filling", 12, 28, 1_234_567, 80_000.0),
    covered=0.4399,
    rows_estimate=2_800_000,
    left_s=171.0,
    lag_s=0.31,
    lag_bytes=12_345_678,
)
WAITING = TableStatus("shipments", "waiting", waiting_for="transaction 731 (pid 4711)")
PAUSED = TableStatus("parts", "paused", 1, 4, covered=0.25, waiting_for="RESUME BACKFILL parts")
FAILED = TableStatus(
    "items", "failed", scanned_rows=5, error="column a changed", hint="RESYNC TABLE items;", retry="after fix"
)
LIVE = TableStatus("empty", "live", covered=1.0, lag_s=240.0)


def test_a_line_per_table_without_a_terminal() -> None:
    assert line(FILLING) == "orders: filling, 43 %, 12 of 28 spans, 1,234,567 rows scanned, 80,000 rows/s, ≈ 3 min left"
    assert line(WAITING) == "shipments: waiting, for transaction 731 (pid 4711)"
    assert line(PAUSED) == "parts: paused, waits for RESUME BACKFILL parts, 25 %, 1 of 4 spans"
    assert line(FAILED).splitlines() == [
        "items: failed, 5 rows scanned: column a changed",
        "  → RESYNC TABLE items; (work resumes after that)",
    ]
    assert line(LIVE) == "empty: live"


def test_without_a_terminal_a_state_is_reported_once() -> None:
    out = io.StringIO()
    with Screen(Console(file=out, width=200)) as screen:
        for _ in range(3):
            screen.update([LIVE, FAILED])
        screen.update([TableStatus("empty", "failed", error="x")])
    assert out.getvalue().splitlines() == [
        "items: failed, 5 rows scanned: column a changed",
        "  → RESYNC TABLE items; (work resumes after that)",
        "empty: live",
        "empty: failed: x",
    ]


def test_without_a_terminal_many_tables_are_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(lines.time, "monotonic", lambda: now)
    said: list[str] = []
    screen = lines.Lines(said.append)
    states = ("defined", "waiting", "filling", "live")
    for moment in range(80):  # 20 seconds, in which each of 30 tables goes through all its states
        now = moment / 4
        at = [min(3, max(0, (moment - i) // 12)) for i in range(30)]
        screen.update([TableStatus(f"t{i}", states[s], covered=s / 3, scanned_rows=100 * s) for i, s in enumerate(at)])
    assert said[0] == "30 tables: 30 defined, 0 % covered"
    assert said[-1] == "30 tables: 30 live, 9,000 rows scanned"
    assert len(said) <= 2 + 20 / lines.INTERVAL_S
    assert re.fullmatch(r"30 tables: \d+ \w+(, \d+ \w+)*, \d+ % covered, [\d,]+ rows scanned", said[2])
    screen.update([TableStatus("t7", "live", error="no answer", hint="Wait.", retry="auto")])
    assert said[-1].startswith("t7: live: no answer")


def test_without_a_terminal_what_many_tables_meet_is_reported_once() -> None:
    said: list[str] = []
    tables = [TableStatus(f"t{i}", "live", error="no answer", hint="Wait.", connection="pg") for i in range(9)]
    other = TableStatus("u", "failed", error="no answer", hint="Wait.", connection="my")
    lines.Lines(said.append).update([*tables, other])
    assert said == ["t0, t1, t2 and 6 more: no answer\n  → Wait.", "u: failed: no answer\n  → Wait."]


def test_without_a_terminal_an_error_that_stays_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(lines.time, "monotonic", lambda: now)
    said: list[str] = []
    screen = lines.Lines(said.append)
    for attempt in range(9):
        now += lines.INTERVAL_S
        full = f"no space left while writing scan-{attempt}"
        waits = f"a retry: {full}"
        status = {"code": "home.disk_full", "error": full, "hint": "Free space.", "waiting_for": waits}
        screen.update([TableStatus("t", "filling", 1, 2, covered=0.5, **status)])  # type: ignore[arg-type]
    assert said == ["t: filling, 50 %, 1 of 2 spans: no space left while writing scan-0\n  → Free space."]


def test_the_overview_shows_every_table_and_why_it_stands_still() -> None:
    shown = text(overview([FILLING, WAITING, PAUSED, FAILED, LIVE], 140), 140)
    assert re.search(r"orders +filling .* 43 % +12/28 +1,234,567 of ≈ 2.8 M +80,000/s +≈ 3 min +0.3 s, 12.3 MB", shown)
    assert "⚠ shipments waits for transaction 731 (pid 4711)" in shown
    assert "⚠ parts waits for RESUME BACKFILL parts" in shown
    assert "✗ items: column a changed\n  → RESYNC TABLE items; (work resumes after that)" in shown
    assert re.search(r"empty +live .* 100 % .* 4 min", shown)
    assert shown.splitlines()[0].split() == ["table", "state", "covered", "spans", "scanned", "rate", "left", "lag"]


def test_a_failed_table_says_what_brings_it_back_after_the_fix() -> None:
    failed = TableStatus("t", "failed", error="must be owner", hint="Run a GRANT.", retry="after fix")
    assert "→ Run a GRANT. (then RESYNC TABLE, or start the server again)" in text(overview([failed], 140), 140)


def test_on_a_narrow_screen_every_row_is_one_line() -> None:
    shown = text(overview([FILLING, WAITING, PAUSED, FAILED, LIVE], 80), 80).splitlines()
    assert re.search(r"^orders +filling .* 43 % +1.2 M +80.0 k/s ≈ 3 min +0.3 s$", shown[1])
    assert [row.split()[0] for row in shown[:6]] == ["table", "orders", "shipments", "parts", "items", "empty"]


def test_what_affects_many_tables_is_reported_once() -> None:
    lost = [TableStatus(f"t{i}", "live", error="no answer", hint="Wait.", retry="auto") for i in range(9)]
    shown = text(overview(lost))
    assert shown.count("no answer") == 1
    assert "✗ t0, t1, t2 and 6 more: no answer\n  → Wait. (Headwater retries)" in shown
    assert "⚠ a, b wait for x" in text(overview([TableStatus(n, "waiting", waiting_for="x") for n in "ab"]))


def test_a_short_screen_shows_first_what_needs_a_look() -> None:
    shown = text(overview([LIVE] * 35 + [FILLING, FAILED], 120, room=30))
    assert shown.splitlines()[1].startswith("items") and "orders" in shown and "… and 7 tables more" in shown
    assert "more" not in text(overview([LIVE] * 35))


@pytest.mark.parametrize(
    ("n", "words"), [(0, "0"), (950, "950"), (12_345, "12.3 k"), (999_700, "1.0 M"), (150_000, "150 k"), (3e9, "3.0 G")]
)
def test_a_large_number_takes_few_characters(n: float, words: str) -> None:
    assert short(n) == words


def test_sizes_have_units() -> None:
    assert [size(n) for n in (0, 999, 2_500_000, 10**9, 5 * 10**15)] == [
        "0 B",
        "999 B",
        "2.5 MB",
        "1.0 GB",
        "5,000.0 TB",
    ]


def test_a_percentage_is_never_rounded_up_to_all() -> None:
    assert "99 %" in line(TableStatus("t", "filling", 999, 1000, covered=0.9999))


def test_verify_says_equal_different_or_not_compared() -> None:
    equal = Verified("orders", True, 300_000, 300_000, "0/1A2B3C", seconds=0.84)
    assert text(verify_report(equal)) == "✓ orders: 300,000 rows equal at 0/1A2B3C (0.8 s)"
    view = Verified("v", True, lake_rows=2, upstream_rows=2, epoch=7, seconds=0.8)
    assert text(verify_report(view)) == "✓ v: 2 rows equal at epoch 7 (0.8 s)"
    differs = Verified("t", False, 9, 10, "0/1", differences=2, missing=("(5)",), different=("(6)",))
    assert text(verify_report(differs)).splitlines() == [
        "✗ t: 2 rows of 10 differ at 0/1",
        "    only in the upstream: (5)",
        "    different: (6)",
    ]
    other = Verified("v", False, 9, 10, epoch=7, differences=2, missing=("(5)",), extra=("(6)",))
    assert text(verify_report(other)).splitlines()[1:] == [
        "    only in the query's result: (5)",
        "    only in the view: (6)",
    ]
    assert text(verify_report(Verified("t", False, skipped="43 % covered"))) == "⚠ t: not compared: 43 % covered"
    failed = Verified("t", False, code="source.unreachable", error="nobody answers", hint="Start it.")
    assert text(verify_report(failed)).splitlines() == [
        "✗ t: could not be compared: nobody answers",
        "  → Start it.",
        "    source.unreachable",
    ]
    said = _said_once([equal, *(replace(failed, table=f"t{i}") for i in range(5)), differs])
    assert [v.table for v in said] == ["orders", "t0, t1, t2 and 2 more", "t"]


def test_status_shows_server_connections_and_tables() -> None:
    failed = ConnectionStatus(
        *("c", "failed", 10, "0/5"),
        error="slot lost",
        hint="Make it anew.",
        retry="never",
        slot_bytes=2_500_000,
        slot_limit_bytes=10_000_000,
        lag_s=3.0,
        lag_bytes=2_000,
    )
    shown = text(status_report(Status("/h", 42, 7, 0.25, (failed,), (LIVE,))))
    assert shown.splitlines()[0] == "/h: server 42, epoch 7, 0.2 s old"
    assert "lag 3.0 s, 2.0 kB  slot keeps 2.5 MB of 10.0 MB" in shown and "empty" in shown
    assert "✗ c: slot lost\n  → Make it anew. (it is not retried)" in shown
    assert "no server runs" in text(status_report(Status("/h")))


def test_an_error_of_a_connection_is_not_repeated_for_its_tables() -> None:
    lost = ConnectionStatus("c", "retrying", error="no answer", hint="It is tried again by itself.", retry="auto")
    table = TableStatus("t", "live", error="no answer", hint="It is tried again by itself.", connection="c")
    shown = text(status_report(Status("/h", 42, 7, 0.25, (lost,), (table,))))
    assert shown.count("no answer") == shown.count("by itself") == 1


def test_a_live_status_continues_until_ctrl_c_and_survives_a_server_that_ends() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=20, force_terminal=True, highlight=False)
    gone = MachineError("server.unreachable", "gone", "Wait.")
    answers: list[Status | Exception] = [
        Status("/h", 42, epoch, connections=(ConnectionStatus("c", "running"),), tables=(FILLING,)) for epoch in (1, 2)
    ]
    answers.insert(1, gone)
    pauses = 0

    def ask() -> Status:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            raise KeyboardInterrupt

    assert watch(console, ask, pause).epoch == 2
    assert "epoch 1" in out.getvalue() and "epoch 2" in out.getvalue() and answers == []
    with pytest.raises(MachineError):
        watch(console, lambda: (_ for _ in ()).throw(MachineError("home.locked", "no", "No.")), pause)


def test_status_survives_the_way_through_json() -> None:
    status = Status("/h", None, 7, None, (ConnectionStatus("c", "running"),), (FILLING,))
    assert Status.of(json.loads(json.dumps(status.as_dict()))) == status
    verified = Verified("t", False, missing=("1", "2"))
    assert Verified.of(json.loads(json.dumps(verified.as_dict()))) == verified


def test_views_are_counted_apart_from_tables() -> None:
    found = [
        TableStatus("t", "live"),
        TableStatus("u", "live"),
        *(TableStatus(n, "filling", kind="materialized view") for n in "vwx"),
    ]
    assert lines.summary(found).startswith("2 tables and 3 views: 3 filling, 2 live")
