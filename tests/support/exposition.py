"""A strict parser of Prometheus' text format, version 0.0.4: what it rejects, no scraper has to accept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
LINE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (NaN|[+-]?(?:Inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?))")
SUFFIXES = {"summary": ("_sum", "_count"), "counter": ("",), "gauge": ("",)}


@dataclass
class Read:
    """A family as parsed."""

    kind: str
    help: str
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


def read(text: str) -> dict[str, Read]:
    """The families of a page; raises AssertionError at anything that the format does not allow."""
    assert text.endswith("\n") and "\r" not in text
    families: dict[str, Read] = {}
    current = ""
    helped: dict[str, str] = {}
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, help = line.split(" ", 3)
            assert re.fullmatch(NAME, name) and name not in helped, line
            helped[name] = help
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped and name not in families and kind in SUFFIXES, line
            families[name], current = Read(kind, helped[name]), name
        else:
            _sample(line, current, families)
    return families


def _sample(line: str, current: str, families: dict[str, Read]) -> None:
    found = LINE.fullmatch(line)
    assert found and current, line
    family = families[current]
    name, labels = found.group(1), found.group(2) or ""
    assert name in [current + s for s in SUFFIXES[family.kind]], f"{line}: stands among those of {current}"
    pairs = tuple((k, _unescaped(v)) for k, v in re.findall(LABEL, labels))
    assert len(dict(pairs)) == len(pairs), f"{line}: a label twice"
    key = (name, pairs)
    assert key not in family.values, f"{line}: twice"
    family.values[key] = float(found.groups()[-1])
    if family.kind in ("counter", "summary"):
        assert family.values[key] >= 0, line


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), text)
