"""Nothing is in the package for tests alone: what a module defines is used by the module itself or by another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src"
# What Python or a library calls by its name, what a command loads when it runs, and modules that are passed as values.
CALLED_BY_NAME = ("headwater", "headwater.cli", "headwater.decode.mysql.dialect", "headwater.decode.postgres.dialect")


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
PACKAGES = {_name(path) for path in ROOT.rglob("__init__.py")}


def _imported(module: str) -> dict[str, tuple[str, str]]:
    """The names that a module imports from the package: local name → (module, name there; "" for a module itself)."""
    found = {}
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("headwater"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = (whole, "") if whole in MODULES else (node.module, alias.name)
    return found


def _uses(module: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything of the package that a module uses."""
    imported = _imported(module)
    if module not in PACKAGES:  # a package only passes names on
        yield from (place for place in imported.values() if place[1])
    for node in ast.walk(MODULES[module]):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield module, name
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if imported.get(name, ("", "x"))[1] == "":
                yield imported[name][0], attribute


def test_everything_that_a_module_defines_is_used_by_the_package() -> None:
    used = {place for module in MODULES for place in _uses(module)}
    for package in PACKAGES:  # who uses a name that a package passes on uses it where it is defined
        used |= {place for name, place in _imported(package).items() if (package, name) in used}
    unused = []
    for module, tree in MODULES.items():
        if module in CALLED_BY_NAME or module.startswith("headwater.cli."):
            continue
        made = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        unused += [(module, name) for name in made if (module, name) not in used]
    assert unused == []
