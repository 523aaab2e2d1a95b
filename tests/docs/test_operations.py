"""What operations and metrics say of states, retries and names is what the program does, in both directions."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from headwater.cli.screen import ORDER
from headwater.cli.words import RETRIES
from headwater.engine.status.metrics import METRICS, STATES
from headwater.errors import Retry
from headwater.model import Control, RelationInfo, TableOrigin, TableState
from headwater.rundir import FILES, FOLDERS, META
from headwater.settings.load import CONF_VARIABLE
from headwater.settings.table import SPARK_CONF
from headwater.settings.table import TABLE as SETTINGS
from headwater.sql.options import TABLES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
TABLE = RelationInfo(1, "t", TableOrigin(1, "s", "t", 1), (), (), {}, TableState.DEFINED, None, "", -1)


def rows(page: str) -> dict[str, list[str]]:
    """The table rows of a page by their first cell (without backticks)."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_state_that_a_screen_can_show_is_documented() -> None:
    shown = {replace(TABLE, state=state, control=control).shown_state for state in TableState for control in Control}
    states = {*TableState, Control.PAUSED}
    assert shown == states == set(ORDER) == set(STATES)
    documented = rows("operations.md").keys()
    assert {s for s in states if s not in documented} == set()
    section = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split("## The states of a table")[1]
    table = section.split("\n\n")[2]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [
        *("defined", "waiting", "filling", "paused", "live", "failed")
    ]


def test_the_errors_that_are_retried_automatically_are_the_documented_ones() -> None:
    auto = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                given = [*node.args, *(k.value for k in node.keywords)]
                if any(isinstance(a, ast.Attribute) and a.attr == "AUTO" for a in given):
                    auto.add(node.args[0].value)
    documented = rows("operations.md")
    assert set(re.findall(r"`([a-z]+\.\w+)`", documented["auto"][1])) == auto
    assert {word for word in documented if word in set(Retry)} == set(Retry) == set(RETRIES)


def test_every_metric_is_documented_with_its_kind_labels_and_meaning_and_no_other() -> None:
    documented = {name: cells for name, cells in rows("metrics.md").items() if re.fullmatch("headwater_[a-z_]+", name)}
    assert list(documented) == list(METRICS)
    for name, m in METRICS.items():
        kind, labels, meaning = documented[name]
        assert (kind, re.findall(r"`(\w+)`", labels), meaning) == (m.kind, list(m.labels), m.help)


def test_every_metric_that_the_code_counts_exists() -> None:
    used = set()
    for path in PACKAGE.rglob("*.py"):
        used |= set(re.findall(r'"(headwater_[a-z_]+)"', path.read_text(encoding="utf-8")))
    assert used == set(METRICS)


def test_every_setting_is_documented_with_its_default_its_variables_and_its_meaning_and_no_other() -> None:
    documented = {name: cells for name, cells in rows("operations.md").items() if "HEADWATER_" in "".join(cells)}
    assert list(documented) == [*SETTINGS, SPARK_CONF.name]
    for name, setting in (*((name, s) for name, (_, s) in SETTINGS.items()), (SPARK_CONF.name, SPARK_CONF)):
        default, variables, meaning = documented[name]
        named = [CONF_VARIABLE] if setting is SPARK_CONF else [setting.environment, setting.older_environment]
        assert re.findall(r"`(\w+)`", variables) == list(dict.fromkeys(v for v in named if v)), name
        shown = setting.kind.show(setting.value(setting.default)) if setting.default else ""
        assert default == (f"`{shown}`" if shown else setting.unset), name
        assert meaning == setting.doc and meaning.endswith("."), name


def test_a_setting_that_is_the_default_of_an_option_is_one_of_the_same_name() -> None:
    for kind, options in TABLES.items():
        for option in options:
            # a view is not scanned: its slices have a size of their own
            if option.name in SETTINGS and kind != "materialized view":
                setting = SETTINGS[option.name][1]
                assert option.default is None and option.doc == setting.doc, option.name
                assert option.check(setting.default), "what holds for all may be said of one"


def test_everything_that_is_in_a_home_is_documented() -> None:
    section = (
        (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split("## What is in a home")[1].split("\n## ")[0]
    )
    own = {name for name in FILES if not name.startswith(f"{META}-")}  # SQLite's, beside meta
    assert {name for name in own if f"`{name}`" not in section} == set()
    assert {name for name in FOLDERS if f"`{name}/`" not in section} == set()
