"""The shape of the tree: who may import whom, how long a file is, what is public, what must not be in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest

import headwater

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
FILES = sorted(PACKAGE.rglob("*.py"))
GROUND = {
    "model",
    "origin",
    "stored",
    "errors",
    "config",
    "settings",
    "storage",
    "rundir",
    "kernel",
    "crash",
    "backoff",
    "ownership",
    "meta",
}  # for all
STAGES = ["source", "changelog", "capture", "decode", "backfill", "relation", "view", "engine", "sql", "check"]
STAGES += ["observe", "facade", "demo", "cli"]
DRIVERS = {"psycopg", "adbc_driver_postgresql", "adbc_driver_manager", "pymysql"}
DRIVER_HOMES = ("source/", "demo/embedded.py", "demo/server.py")
MAX_LINES = 500
MAX_MODULES = 19
MAX_DOCSTRING_LINES = 15


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """All imported modules of a file, also those inside functions and for type checking only."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


# Meta itself may live in a PostgreSQL; the demo runs servers of its own; the command line says what it is for.
NAMES_DATABASES = ("source/", "decode/", "demo/", "meta/store.py", "settings/table.py", "settings/places.py")
NAMES_DATABASES += ("cli/app.py", "__init__.py")
NAMES = re.compile(r"(?i)postgres|psycopg|mysql|mariadb|pgoutput|adbc|binlog|\blsn")


def outside(*homes: str) -> list[Path]:
    """The files that lie in none of these places."""
    return [path for path in FILES if not name_of(path).startswith(homes)]


def test_no_stage_but_source_and_decode_names_a_database() -> None:
    found = {name_of(p): NAMES.findall(p.read_text(encoding="utf-8")) for p in outside(*NAMES_DATABASES)}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_stage_imports_only_the_ground_and_earlier_stages() -> None:
    wrong = []
    for path in FILES:
        own = name_of(path).split("/")[0].removesuffix(".py")
        if own == "__init__":
            continue  # the facade of all
        earlier = GROUND | set(STAGES[: STAGES.index(own) + 1] if own in STAGES else ())
        for line, module in imports(path):
            parts = module.split(".")
            if parts[0] != "headwater" or len(parts) < 2 or parts[1] == "__version__":
                continue
            if parts[1] not in earlier and (own, parts[1]) != ("cli", "open"):
                wrong.append(f"{name_of(path)}:{line}: {module}")
    assert wrong == []


# After the modules of `engine/` itself, which import none of these folders.
ENGINE = ["spark", "query", "commit", "fill", "view", "status", "serve"]


def test_a_folder_of_the_engine_imports_only_earlier_ones() -> None:
    assert {p.name for p in (PACKAGE / "engine").iterdir() if p.is_dir() and p.name != "__pycache__"} == set(ENGINE)
    wrong = []
    for path in (PACKAGE / "engine").rglob("*.py"):
        own = name_of(path).split("/")[1]
        later = ENGINE[ENGINE.index(own) + 1 if own in ENGINE else 0 :]
        for line, module in imports(path):
            parts = module.split(".")
            if parts[:2] == ["headwater", "engine"] and parts[2] in later:
                wrong.append(f"{name_of(path)}:{line}: {module}")
    assert wrong == []


def test_drivers_appear_only_at_the_source() -> None:
    found = [(name_of(p), m) for p in outside(*DRIVER_HOMES) for _, m in imports(p) if m.split(".")[0] in DRIVERS]
    assert found == []


def test_a_file_is_short_and_says_what_it_is() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MAX_LINES, name_of(path)
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, f"{name_of(path)}: a file begins with what you get"
        if path.name == "__init__.py":
            assert len(docstring.splitlines()) <= MAX_DOCSTRING_LINES, name_of(path)


FOLDERS = [path.parent for path in FILES if path.name == "__init__.py" and path.parent != PACKAGE]


def test_a_folder_reads_like_a_table_of_contents() -> None:
    """A folder that would have more modules gets folders by concern, with the seam's own names at its top."""
    sizes = {name_of(folder): len(list(folder.glob("*.py"))) for folder in [PACKAGE, *FOLDERS]}
    assert {name: size for name, size in sizes.items() if size > MAX_MODULES} == {}


# `word`, `a.b`, `a/b`, `a.b()`, `a.b.Class`
NAMED = re.compile(r"`([a-z_]+(?=`)|[a-z_]+(?:[./][a-z_]+)+(?=`|\(\)`|\.[A-Z]\w+`))")


def is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def stands(folder: Path, name: str) -> bool:
    """Whether a folder's text may call something `name`: a module of the folder, or one with a path from the package.

    Behind a dot may stand what a module defines.
    """
    parts = re.split(r"[./]", name)
    if len(parts) == 1:
        return is_module(folder / name)
    for start in (folder, PACKAGE):
        if is_module(start.joinpath(*parts)):
            return True
        module = start.joinpath(*parts[:-1]).with_suffix(".py")
        if module.is_file() and re.search(rf"^(def|class) {parts[-1]}\b|^{parts[-1]} =", module.read_text(), re.M):
            return True
    return False


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folders_text_names_only_modules_that_there_are(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert [name for name in NAMED.findall(docstring) if not stands(folder, name)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folders_text_names_every_module_in_it(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    named = {re.split(r"[./]", name)[0] for name in NAMED.findall(docstring)}
    inside = {p.stem for p in folder.iterdir() if p.name != "__init__.py" and is_module(p.with_suffix(""))}
    assert inside - named == set()


UNIT = ROOT / "tests" / "unit"


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=lambda path: path.relative_to(UNIT).as_posix())
def test_a_unit_test_stands_where_its_module_does(path: Path) -> None:
    """`tests/unit/a/test_b.py`, or `test_b_and_what.py`, tests `a/b.py`."""
    folder = PACKAGE / path.parent.relative_to(UNIT)
    assert folder.is_dir(), f"there is no folder {folder.relative_to(ROOT)}"
    tested = path.stem.removeprefix("test_")
    modules = [p.stem for p in folder.glob("*.py")] + [p.name for p in folder.iterdir() if p.is_dir()]
    assert any(tested == m or tested.startswith(f"{m}_") for m in modules), f"nothing there is called {tested}"


def test_every_text_about_the_package_names_its_sources() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for text in (headwater.__doc__ or "", described, readme):
        assert {"PostgreSQL", "MySQL", "MariaDB"} <= set(re.findall(r"\w+", text))


def test_every_folder_of_code_is_a_stage() -> None:
    folders = {p.parent.relative_to(PACKAGE).parts[0] for p in FILES if p.parent != PACKAGE}
    assert folders <= {*STAGES, *GROUND}


# What belongs to this machine: the run directory, processes, programs and what users give us. The lake is in none.
PATH_USERS = (
    "storage/",
    "rundir/",
    "config.py",
    "settings/",
    "kernel.py",
    "facade.py",
    "cli/",
    "demo/",
    "capture/process.py",
)
PATH_USERS += ("engine/home.py", "engine/serve/", "engine/spark/", "engine/status/metrics.py")
FILE_CALLS = re.compile(r"\bmemory_map\b|\bos\.(path|open|remove|unlink|makedirs)\b|(?<![.\w])open \(")


def test_the_lakes_files_are_reached_through_its_storage_alone() -> None:
    for path in outside(*PATH_USERS):
        modules = {module.split(".")[0] for _, module in imports(path)}
        assert not modules & {"pathlib", "shutil", "tempfile", "glob"}, name_of(path)
        assert not FILE_CALLS.search(_code(path)), name_of(path)


def test_the_spark_context_is_used_in_one_place() -> None:
    users = [name_of(p) for p in FILES if "sparkContext" in _code(p)]
    assert {p.rsplit("/", 1)[0] for p in users} == {"engine/spark"}


# Who may see that a relation comes from an upstream's table: what defines, follows, fills, watches or describes one.
# The rest asks `meta/changes.py`, so that a view, whose rows come from elsewhere, needs no change there.
SEE_ORIGINS = ["backfill/read_span.py", "changelog/memory.py"]
SEE_ORIGINS += [f"engine/fill/{name}.py" for name in ("backfill", "planner", "scanner")]
SEE_ORIGINS += ["engine/query/changes.py", "engine/serve/watcher.py"]  # the former for the upstream's names
SEE_ORIGINS += ["meta/changes.py", "model.py"]
SEE_ORIGINS += [f"sql/{name}.py" for name in ("control", "define", "listing")]
# other things that have an origin: settings, Python packages, the origin of a Debezium event, rows of an overlay
OTHER_ORIGINS = ["changelog/envelope.py", "cli/settings.py", "demo/embedded.py", "relation/net.py", "settings/table.py"]


def test_only_what_deals_with_upstreams_sees_the_origin_of_a_relation() -> None:
    found = [
        name_of(path)
        for path in outside("source/", *OTHER_ORIGINS)
        if any(
            isinstance(n, ast.Attribute) and n.attr in ("origin", "table_origin")
            for n in ast.walk(ast.parse(path.read_text()))
        )
    ]
    assert found == SEE_ORIGINS


# Not about who owns anything: open files of this process, memory of processes, the boot id of the machine.
READS_PROC = ["engine/serve/wire.py", "engine/status/metrics.py", "rundir/lock.py", "storage/local.py"]


def test_locks_and_processes_of_this_machine_decide_ownership_in_one_place() -> None:
    assert [name_of(p) for p in FILES if re.search(r"\bfcntl\b|\bflock\b", _code(p))] == ["rundir/lock.py"]
    assert [name_of(p) for p in FILES if "/proc/" in p.read_text(encoding="utf-8")] == READS_PROC


def test_the_environment_is_read_in_one_place() -> None:
    readers = [name_of(p) for p in FILES if re.search(r"\bgetenv\b|environ\.get|environ\[[^\]]+\](?!\s*=)", _code(p))]
    assert readers == ["config.py"]


def test_the_public_surface_is_what_it_is() -> None:
    assert sorted(headwater.__all__) == ["HeadwaterError", "IncompleteWarning", "StaleWarning", "__version__", "open"]
    assert callable(headwater.open)
    assert (PACKAGE / "py.typed").exists()


def test_nothing_in_the_tree_names_a_machine() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    own_home = re.compile(
        r"/(?:home|Users|root|work)/\w+/|/tmp/w\b|index-url|https?://[^\s/]*(?:registry|mirror|nexus)[^\s/]*/"
    )
    found = []
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {m.group()}" for m in own_home.finditer(text)]
    assert found == []


@pytest.mark.parametrize(("user", "status"), [("0", 2), ("1000", 0)])
def test_a_mysql_that_cannot_be_set_up_fails_the_run_of_root_only(user: str, status: int, tmp_path: Path) -> None:
    programs = {"make": '[ "$1" != setup-mysql ] || exit 2', "id": f"echo {user}", "debootstrap": "true"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, check=False)
    assert done.returncode == status


@cache
def _code(path: Path) -> str:
    """The file's code without comments and strings."""
    with path.open("rb") as f:
        kept = [t.string for t in tokenize.tokenize(f.readline) if t.type in (tokenize.NAME, tokenize.OP)]
    return " ".join(kept).replace(" . ", ".").replace(" [ ", "[").replace(" ]", "]")
