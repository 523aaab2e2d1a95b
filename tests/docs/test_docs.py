"""The documents say what the program does: codes, commands, options, statements, examples, links."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer

from headwater.cli.app import app
from headwater.crash import POINTS
from headwater.errors import CODES
from headwater.sql.options import TABLES, Option
from headwater.sql.parse import EXPLAIN_MODES, parse
from headwater.sql.statements import Listing, ObjectKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """The table rows of a page by their first cell (without backticks)."""
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_error_code_is_documented_with_its_meaning_and_no_other() -> None:
    documented = {code: cells for code, cells in rows(page("errors.md")).items() if re.fullmatch(r"[a-z]+\.\w+", code)}
    assert len(re.findall(r"^\| `[a-z]+\.\w+` \|", page("errors.md"), re.MULTILINE)) == len(documented)  # each once
    assert sorted(documented) == sorted(CODES)
    assert {code: cells[0] for code, cells in documented.items()} == {
        code: known.meaning for code, known in CODES.items()
    }
    assert all(cells[1].endswith(".") for cells in documented.values())
    for section in page("errors.md").split("\n## ")[1:]:
        (status,) = re.findall(r"\(exit (\d)\)$", section.splitlines()[0])
        assert {CODES[code].kind.exit_status for code in rows(section) if code in CODES} == {int(status)}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_and_option_is_documented(command: str) -> None:
    text = page("operations.md") + page("quickstart.md")
    assert f"`headwater {command}" in text
    for parameter in COMMANDS[command].params:
        for name in parameter.opts:
            assert (name if name.startswith("-") else f"[{name.upper()}") in text, f"{command} {name}"


@pytest.mark.parametrize(
    ("kind", "option"), [pytest.param(k, o, id=f"{k}-{o.name}") for k, os in TABLES.items() for o in os]
)
def test_every_sql_option_is_documented_with_its_default(kind: str, option: Option) -> None:
    text = page("sql.md")  # each type of connection has its own list, and so have tables and views
    if kind in ("table", "materialized view"):
        text = text.split(f"## CREATE {kind.upper()}\n")[1].split("\n## ")[0]
    else:
        text = text.split(f"### Options of `{kind}`")[1].split("###")[0]
    default, meaning = rows(text)[option.name]
    assert meaning == option.doc
    assert default == "required" if option.required else option.default is None or default == f"`{option.default}`"


def test_every_statement_is_documented() -> None:
    text = page("sql.md")
    wanted = ["CREATE CONNECTION", "CREATE TABLE", "DROP CONNECTION", "DROP TABLE", "SHOW CREATE TABLE", "DESCRIBE"]
    wanted += ["SHOW CREATE CONNECTION", "FOLD TABLE", "EXPLAIN", "BEGIN", "COMMIT", "changelog(", "IF NOT EXISTS"]
    wanted += (
        [f"SHOW {k.upper()}" for k in Listing] + list(EXPLAIN_MODES) + ["SELECT", "WITH", "VALUES", "TABLE t", "FROM …"]
    )
    for kind in ObjectKind:
        wanted += [f"CREATE {kind.upper()}", f"DROP {kind.upper()}", f"SHOW CREATE {kind.upper()}"]
    wanted += [f"{word} MATERIALIZED VIEW" for word in ("ALTER", "PAUSE", "RESUME", "REFRESH", "FOLD", "EXPLAIN")]
    wanted += ["changes('"]
    assert [w for w in wanted if w not in text] == []


def test_every_sql_example_is_read() -> None:
    found = 0
    for path in PAGES:
        for block in re.findall(r"```sql\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            found += len(parse(block))
    assert found > 20


def test_every_example_file_is_read() -> None:
    found = sorted((ROOT / "examples").glob("*.sql"))
    assert len(found) >= 2 and all(parse(file.read_text()) for file in found)


def test_every_link_leads_somewhere() -> None:
    dead = []
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")) and not (path.parent / target).exists():
                dead.append(f"{path.relative_to(ROOT)}: {target}")
    assert dead == []


@pytest.mark.parametrize("name", ["guarantees.md", "views.md"])
def test_every_test_that_a_promise_names_exists(name: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", page(name)))
    code = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py"))
    assert named, "no test is named"
    assert sorted(n for n in named if f"def {n}(" not in code) == []


def test_every_query_shape_is_a_case_of_a_documented_operator_and_no_other() -> None:
    source = ast.parse((ROOT / "tests" / "support" / "view_cases.py").read_text(encoding="utf-8"))
    (queries,) = (n.value for n in source.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "QUERIES")
    assert isinstance(queries, ast.Dict)
    operators = rows(page("views.md").split("| operator | rule | key | cases |")[1])
    documented = {case.strip() for cells in operators.values() for case in cells[-1].split(",")} - {"---"}
    assert documented == {ast.literal_eval(key) for key in queries.keys if key is not None}


def test_every_crash_point_has_a_test_that_kills_there() -> None:
    faults = ROOT / "tests" / "faults"
    listed = r'crash\.POINTS if p\.split\("\."\)\[0\] in \((.*?)\)'  # a test runs over these stages
    (stages,) = re.findall(listed, (faults / "test_capture.py").read_text(encoding="utf-8"))
    chains = (faults / "test_server.py").read_text(encoding="utf-8").split("CHAINS = (")[1].split("\n)")[0]
    chains += (faults / "test_views.py").read_text(encoding="utf-8").split("CHAIN = (")[1].split("\n")[0]
    covered = [name for name in POINTS if f'"{name.split(".")[0]}"' in stages or f'"{name}"' in chains]
    assert covered == list(POINTS)
    code = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py"))
    assert [name for name in POINTS if len(re.findall(rf'"{re.escape(name)}"', code)) < 2] == [], "nobody gets there"


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_the_architecture_begins_with_the_one_sentence() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert "the log is the truth; a table is a fold of it" in lines[2].lower()


def test_every_hazard_has_an_answer_and_a_named_test() -> None:
    """The numbers are those of the project's list of hazards."""
    hazards = {number: cells for number, cells in rows(page("guarantees.md")).items() if number.isdigit()}
    assert [n for n in range(1, 79) if str(n) not in hazards] == []
    assert [n for n, cells in hazards.items() if "`test_" not in cells[2]] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_and_folder_that_the_map_names_exists(page: str) -> None:
    named = re.findall(r"`([a-z_]+/[\w/.]*)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [n for n in named if not any((at / n).exists() for at in (ROOT, ROOT / "src" / "headwater"))] == []
