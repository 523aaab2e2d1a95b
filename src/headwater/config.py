"""The only reader of the environment, the resolver of secrets, and limits that are not configurable (see settings/)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import DefinitionError, InputError, MachineError
from headwater.settings import places

DEFAULT_HOME = "./headwater-data"

LEASE_S = 15.0  # a stopped owner is replaced after this time
MAX_SPANS = 10_000
SMALL_ROWS = 10_000  # of a small table at once: the upstream's size of a table may be stale
SCAN_BATCH_BYTES = 8 << 20
LOCK_TIMEOUT_S = 10.0
PIN_S = 3600.0


def home_from(option: str | None) -> Path:
    """The home directory: the option, or HEADWATER_HOME, or ./headwater-data."""
    given = option or os.environ.get("HEADWATER_HOME") or DEFAULT_HOME
    # on an object store Delta's log is safe only with conditional writes, which are not implemented yet
    if "://" in given:
        raise MachineError(
            "home.unusable",
            f"a home must be a directory on a local disk, which {given} is not",
            "Choose a local directory with --home DIR or HEADWATER_HOME.",
        )
    return Path(given).absolute()


def variables() -> Mapping[str, str]:
    """The environment, for the settings in it (settings/load.py)."""
    return dict(os.environ)


def meta_url(home: Path, given: str) -> str:
    """Where meta is: the configured URL, or SQLite in the home."""
    if not given:
        return f"sqlite:///{home / 'meta.db'}"
    secret = Secret(given)
    if secret.reference is None:
        return given
    try:
        return places.meta_url(secret.resolve())
    except ValueError as e:
        raise InputError("settings.value", f"{secret.reference}: meta.url {e}", "Correct what it refers to.") from e


def java_command() -> str | None:
    """The java that Spark would use, or None."""
    import shutil

    java_home = os.environ.get("JAVA_HOME")
    if java_home and (Path(java_home) / "bin" / "java").exists():
        return str(Path(java_home) / "bin" / "java")
    return shutil.which("java")


def crash_point() -> str | None:
    """The named point at which to kill this process; set only by fault tests (see crash.py)."""
    return os.environ.get("HEADWATER_CRASH")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A password as the user gave it: a value, `env:NAME` or `file:PATH`. Its repr is masked."""

    text: str

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    @property
    def reference(self) -> str | None:
        """Where the password comes from, unless it is given by value: only then may the text be shown."""
        return self.text if self.text.startswith(("env:", "file:")) else None

    def resolve(self) -> str:
        """The password itself; call on the driver, as late as possible."""
        if self.text.startswith("env:"):
            name = self.text[4:]
            if name not in os.environ:
                raise DefinitionError(
                    "secret.missing", f"environment variable {name} is not set", f"Set {name} and start again."
                )
            return os.environ[name]
        if self.text.startswith("file:"):
            try:
                return Path(self.text[5:]).read_text(encoding="utf-8").rstrip("\r\n")
            except OSError as e:
                raise DefinitionError(
                    "secret.missing",
                    f"cannot read the password file {self.text[5:]}: {e.strerror}",
                    "Create the file with the password as its only line, readable by this user.",
                ) from e
        return self.text
