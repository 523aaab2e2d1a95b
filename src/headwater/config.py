"""Settings: the only reader of the environment, and the resolver of secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import DefinitionError, MachineError

DEFAULT_HOME = "./headwater-data"

FLUSH_INTERVAL_S = 0.25  # a quarter of a second keeps freshness below half a second with cheap fsyncs
FLUSH_BYTES = 8 << 20  # two inboxes, a segment and its compressed form: the capture stays below 300 MB
HEARTBEAT_INTERVAL_S = 10.0
LEASE_S = 15.0  # a stopped owner is replaced after this long
CAPTURE_SILENCE_S = float(os.environ.get("HEADWATER_CAPTURE_SILENCE_S", "20"))  # a capture not heard of is replaced
SPAN_ROWS = 200_000
SPAN_BYTES = 64 << 20
MAX_SPANS = 10_000
SMALL_BYTES = 1 << 20  # a table of so few is read by the server itself: a Spark task would cost more than the rows
SMALL_ROWS = 10_000  # but no more than these at once: what the upstream says of a table's size may be old
SCAN_SLICE_S = 5.0  # a scan stops after this long and hands the rest back, so that control takes effect soon
SCAN_BATCH_BYTES = 8 << 20
LOCK_TIMEOUT_S = 10.0
TAIL_CHANGES = int(os.environ.get("HEADWATER_TAIL_CHANGES", "50000"))  # above this the tail becomes a run
OVERLAY_CHANGES = 1_000_000  # above this (or OVERLAY_BYTES) a fold is due at once
OVERLAY_BYTES = 256 << 20
FOLD_AGE_S = float(os.environ.get("HEADWATER_FOLD_AGE_S", "3600"))  # an overlay is folded after this long
REPLACED_BYTES = int(os.environ.get("HEADWATER_REPLACED_BYTES", str(4 << 20)))  # a fold writes a smaller base anew
REPLACED_MEMORY = 64 << 20  # bytes; if such a base and its overlay need more, they are merged all the same
FOLD_BUDGET = 0.25  # share of the time that folds may take
SEGMENT_AGE_S = float(os.environ.get("HEADWATER_SEGMENT_AGE_S", "60"))  # older segments merge
SEGMENT_BYTES = 64 << 20  # of a merged segment
BASE_FILES = int(os.environ.get("HEADWATER_BASE_FILES", "16"))  # so many small or dead files of a base make upkeep due
UPKEEP_BUDGET = 0.1  # share of the time that upkeep of bases may take
HISTORY_S = float(os.environ.get("HEADWATER_HISTORY_S", "600"))  # what nobody pins stays readable for this long
RETENTION_S = 24 * 3600.0
PIN_S = 3600.0


def home_from(option: str | None) -> Path:
    """The home directory: the option, else HEADWATER_HOME, else ./headwater-data."""
    given = option or os.environ.get("HEADWATER_HOME") or DEFAULT_HOME
    if "://" in given:  # on an object store Delta's log is safe only with conditional writes, which are not there yet
        raise MachineError(
            "home.unusable",
            f"a home is a directory on a local disk, and {given} is none",
            "Choose a local directory with --home DIR or HEADWATER_HOME.",
        )
    return Path(given).absolute()


def meta_url_from(home: Path) -> str:
    """Where meta lives: HEADWATER_META (a PostgreSQL URL), else SQLite in the home."""
    return os.environ.get("HEADWATER_META") or own_meta_url(home)


def own_meta_url(home: Path) -> str:
    """Meta in the home itself."""
    return f"sqlite:///{home / 'meta.db'}"


def java_command() -> str | None:
    """The java that Spark would use, or None."""
    import shutil

    java_home = os.environ.get("JAVA_HOME")
    if java_home and (Path(java_home) / "bin" / "java").exists():
        return str(Path(java_home) / "bin" / "java")
    return shutil.which("java")


def crash_point() -> str | None:
    """The named point at which this process is to be killed; set by fault tests only (see crash.py)."""
    return os.environ.get("HEADWATER_CRASH")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A password as the user gave it: a value, `env:NAME` or `file:PATH`. Shows itself as stars."""

    text: str

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    @property
    def reference(self) -> str | None:
        """Where the password comes from, if it is not given by value: only then may the text be shown."""
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
