"""Reads the settings from the file, the environment and the command line; later ones override earlier ones."""

from __future__ import annotations

import difflib
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater import config
from headwater.errors import InputError
from headwater.settings.table import CONF, NAMED_BY_SPARK, OURS, TABLE, Chosen, SetBy, Setting, Settings, sensitive

FILE = "headwater.toml"  # in the home
FILE_VARIABLE = "HEADWATER_CONFIG"
CONF_VARIABLE = "HEADWATER_SPARK_CONF"


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line or a program sets: a file to read instead of the home's, and values by name."""

    file: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, file: str | None, pairs: Iterable[str] | None = None, master: str | None = None) -> Given:
        """What `--config FILE`, `--set NAME=VALUE` and `--master URL` set."""
        values = {}
        for pair in pairs or ():
            name, found, value = pair.partition("=")
            if not found:
                raise InputError(
                    "input.usage", f"--set {pair} is not NAME=VALUE", "Write, for example, --set fold.age=10min."
                )
            values[name.strip()] = value
        return cls(file, values if master is None else values | {"spark.master": master})

    def anywhere(self) -> Given:
        """The same, for a process in another directory."""
        return self if self.file is None else replace(self, file=str(Path(self.file).absolute()))

    def arguments(self) -> tuple[str, ...]:
        """The same, as arguments for a child process."""
        file = () if self.file is None else ("--config", str(self.anywhere().file))
        return (*file, *(word for name, value in self.values.items() for word in ("--set", f"{name}={value}")))


NOTHING = Given()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One value as the user wrote it."""

    name: str
    text: str
    chosen: Chosen


def load(home: Path, given: Given = NOTHING) -> Settings:
    """The settings of a home; an InputError says which value is wrong, where, and what is expected."""
    variables = config.variables()
    named = given.file or variables.get(FILE_VARIABLE)
    path = Path(named).absolute() if named else home / FILE
    read = bool(named) or path.exists()
    values: dict[str, Any] = {}
    conf: dict[str, str] = {}
    chosen: dict[str, Chosen] = {}
    in_file = _in_file(path, named or FILE) if read else ()
    for entry in (*in_file, *_in_environment(variables), *_on_command_line(given)):
        chosen[entry.name] = entry.chosen
        if entry.name.startswith(CONF):
            conf[entry.name.removeprefix(CONF)] = _pair(entry)
        else:
            attribute, setting = _known(entry)
            values[attribute] = _value(entry, setting)
    file = str(path) if read else ""
    return Settings(**values, spark_conf=conf, file=file, chosen=chosen, arguments=given.arguments())


def _in_file(path: Path, label: str) -> Iterator[_Entry]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = tomllib.loads(text)
    except OSError as e:
        raise _file_error(path, f"cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise _file_error(path, "is not UTF-8 text") from e
    except tomllib.TOMLDecodeError as e:
        raise _file_error(path, f"is not TOML: {e}") from e
    places = _places(text)
    for name, value in _flat(content):
        chosen = Chosen(SetBy.FILE, f"{label} line {places[name]}")
        if not isinstance(value, str | int | float):  # a bool is also an int
            raise _value_error(
                _Entry(name, "", chosen), "must be a string or a number", 'Write, for example, "10s" or 10.'
            )
        yield _Entry(name, str(value).lower() if isinstance(value, bool) else str(value), chosen)


def _file_error(path: Path, what: str) -> InputError:
    hint = f"Correct the file, or name another with --config FILE or {FILE_VARIABLE}."
    return InputError("settings.file", f"{path} {what}", hint)


def _flat(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Names with their values; a table's name and a key form one name, however deeply nested."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def _places(text: str) -> dict[str, int]:
    """The line where each name's value ends: the first one after which the file parses with it."""
    found: dict[str, int] = {}
    rows = text.split("\n")
    for number in range(1, len(rows) + 1):
        try:
            known = tomllib.loads("\n".join(rows[:number]))
        except tomllib.TOMLDecodeError:  # in the middle of a value
            continue
        for name, _ in _flat(known):
            found.setdefault(name, number)
    return found


def _in_environment(variables: Mapping[str, str]) -> Iterator[_Entry]:
    """Unknown names in the environment may belong to anyone: they are ignored."""
    for name, (_, setting) in TABLE.items():
        for variable in (setting.older_environment, setting.environment):
            if variables.get(variable, ""):
                yield _Entry(name, variables[variable], Chosen(SetBy.ENVIRONMENT, variable))
    for pair in shlex.split(variables.get(CONF_VARIABLE, "")):
        name, found, value = pair.partition("=")
        entry = _Entry(CONF + name, value, Chosen(SetBy.ENVIRONMENT, CONF_VARIABLE))
        if not found:
            raise _value_error(entry, "has no value", f"Write {CONF_VARIABLE}='spark.a=1 spark.b=2'.")
        yield entry


def _on_command_line(given: Given) -> Iterator[_Entry]:
    for name, text in given.values.items():
        entry = _Entry(name, text, Chosen(SetBy.COMMAND_LINE, ""))
        secret = sensitive(name) if name.startswith(CONF) else _known(entry)[1].secret
        if secret and not text.startswith(("env:", "file:")):
            hint = "Write it to the settings file, or give env:NAME or file:PATH."
            raise _value_error(
                entry, "must not be on a command line, where every user of the machine can read it", hint
            )
        yield entry


def _known(entry: _Entry) -> tuple[str, Setting]:
    if entry.name in TABLE:
        return TABLE[entry.name]
    near = difflib.get_close_matches(entry.name.lower(), [*TABLE, CONF], 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else "`headwater settings` lists all of them."
    raise InputError("settings.unknown", f"{_where(entry)}there is no setting {entry.name}", hint)


def _value(entry: _Entry, setting: Setting) -> Any:
    try:
        return setting.value(entry.text)
    except ValueError as e:
        raise _value_error(entry, str(e), setting.doc) from e


def _pair(entry: _Entry) -> str:
    name = entry.name.removeprefix(CONF)
    if not name.startswith("spark."):
        raise _value_error(
            entry, "is not a Spark setting", "Write the full name, for example spark.conf.spark.cores.max."
        )
    if name in NAMED_BY_SPARK:
        raise _value_error(entry, "has its own setting", f"Set {NAMED_BY_SPARK[name]}.")
    if name in OURS:
        raise _value_error(entry, "is reserved by Headwater", "Remove it.")
    return entry.text


def _value_error(entry: _Entry, expected: str, hint: str) -> InputError:
    return InputError("settings.value", f"{_where(entry)}{entry.name} {expected}", hint)


def _where(entry: _Entry) -> str:
    return f"{entry.chosen.location}: " if entry.chosen.location else ""
