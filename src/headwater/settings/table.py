"""Every setting in one table: name, kind, default, meaning. `Settings` holds the values in force.

A setting with the same name as an option of a connection or a table (docs/sql.md) applies to those that do not set
the option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from headwater.settings.places import meta_url, spark_master
from headwater.settings.values import Kind, amount, duration, number, part

DAY_S = 86400.0
MOST = 1 << 40
CONF = "spark.conf."
TEXT = Kind(str.strip)

# Spark's own names for some settings, and settings that are not configurable: `spark.conf` may not set either.
NAMED_BY_SPARK = {
    "spark.master": "spark.master",
    "spark.driver.memory": "spark.driver_memory",
    "spark.driver.host": "spark.driver_host",
    "spark.driver.bindAddress": "spark.driver_bind",
    "spark.pyspark.python": "spark.python",
    "spark.executorEnv.PYTHONPATH": "spark.python_path",
    "spark.authenticate.secret": "spark.secret",
}
OURS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.sql.session.timeZone")
_SENSITIVE = re.compile(r"(?i)secret|password|token|access[.]?key")  # the same rule as Spark's own


class SetBy(StrEnum):
    """Where a value comes from; each overrides the ones before it."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table. `unset` describes in words what applies without a value."""

    name: str
    kind: Kind
    default: str
    doc: str
    unset: str = ""
    secret: bool = False
    older_environment: str = ""  # an older name, from before this table existed

    @property
    def environment(self) -> str:
        return "HEADWATER_" + self.name.upper().replace(".", "_")

    def value(self, text: str) -> Any:
        """The value the program uses; a ValueError says what is expected."""
        return self.kind.value(self.kind.check(text))


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a value that is not the default comes from; `location` is a line of a file or a variable."""

    set_by: SetBy
    location: str


def _setting(name: str, kind: Kind, default: str, doc: str, **more: Any) -> Any:
    setting = Setting(name, kind, default, doc, **more)
    return field(default=setting.value(default), metadata={"setting": setting})


def _text(name: str, unset: str, doc: str, kind: Kind = TEXT, **more: Any) -> Any:
    return _setting(name, kind, "", doc, unset=unset, **more)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """The values in force. Created by `load`; `Settings()` holds the defaults."""

    meta_url: str = _text(
        "meta.url",
        "SQLite in the home",
        "The database of definitions and progress: a PostgreSQL URL.",
        Kind(meta_url),
        secret=True,
        older_environment="HEADWATER_META",
    )
    # a quarter of a second keeps freshness below half a second with cheap fsyncs
    flush_interval_s: float = _setting(
        "flush.interval", duration(0.01, 60), "250ms", "How often a capture publishes what it has received."
    )
    # two inboxes, a segment and its compressed form: keeps the capture below 300 MB
    flush_bytes: int = _setting(
        "flush.bytes", amount(1 << 16, 1 << 28), "8MB", "How much a capture receives before it publishes immediately."
    )
    heartbeat_interval_s: float = _setting(
        "heartbeat.interval",
        duration(0, 3600),
        "10s",
        "How often Headwater makes an idle upstream's log advance; `0` turns this off.",
    )
    capture_silence_s: float = _setting(
        "capture.silence",
        duration(1, 3600),
        "20s",
        "How long a capture may be silent before it is replaced.",
        older_environment="HEADWATER_CAPTURE_SILENCE_S",
    )
    retention_hours: int = _setting(
        "retention.hours",
        number(0, 24 * 365),
        "24",
        "Minimum time that changes stay in the changelog; for a failed table, the maximum.",
    )
    changelog_max_bytes: int = _setting(
        "changelog.max_bytes",
        amount(0, 10**15),
        "0",
        "Changelog size above which changes are no longer kept for failed tables or for `retention.hours`; "
        "`0` means no limit.",
    )
    changelog_ahead_bytes: int = _setting(
        "changelog.ahead_bytes",
        amount(0, 10**15),
        "16GB",
        "Size of unfolded changes in the changelog above which the capture pauses; `0` means no limit.",
    )
    history_s: float = _setting(
        "epoch.history",
        duration(0, 7 * DAY_S),
        "10min",
        "How long an unpinned epoch stays readable.",
        older_environment="HEADWATER_HISTORY_S",
    )
    rows_per_span: int = _setting("backfill.rows_per_span", number(1, 100_000_000), "200000", "Planned rows per scan.")
    span_bytes: int = _setting(
        "backfill.span_bytes",
        amount(1 << 10, MOST),
        "64MB",
        "Planned bytes per scan when rows are short, unless the table sets `backfill.rows_per_span`.",
    )
    small_bytes: int = _setting(
        "backfill.small_bytes",
        amount(0, 1 << 30),
        "1MB",
        "Tables smaller than this are first read by the server itself, without a Spark task.",
    )
    scan_s: float = _setting(
        "backfill.slice",
        duration(0.1, 600),
        "5s",
        "How long a scan keeps its transaction open upstream before it returns the rest of its span.",
    )
    tail_changes: int = _setting(
        "tail.changes", number(1, 100_000_000), "50000", "Number of changes at which a tail becomes a run."
    )
    tail_memory_bytes: int = _setting(
        "tail.memory", amount(1 << 20, MOST), "256MB", "Server memory for the decoded changes of all tables."
    )
    # some 0.5 kB of memory per change while it is decoded and netted
    slice_changes: int = _setting(
        "slice.changes",
        number(1, 100_000_000),
        "500000",
        "Changes decoded and netted at once; longer backlogs and larger transactions are processed in slices.",
    )
    slice_bytes: int = _setting(
        "slice.bytes", amount(1 << 16, 1 << 30), "64MB", "Bytes of changes decoded and netted at once."
    )
    fold_age_s: float = _setting(
        "fold.age",
        duration(0, 30 * DAY_S),
        "1h",
        "How long an overlay may grow before it is folded, regardless of its size.",
        older_environment="HEADWATER_FOLD_AGE_S",
    )
    fold_changes: int = _setting(
        "fold.changes",
        number(1, 1_000_000_000),
        "1000000",
        "Changes in an overlay above which it is folded immediately, regardless of the budget.",
    )
    fold_budget: float = _setting("fold.budget", part(0.01, 1), "0.25", "Share of time that folds may take.")
    replaced_bytes: int = _setting(
        "fold.replaced_bytes",
        amount(0, 1 << 30),
        "4MB",
        "A fold rewrites a base smaller than this instead of merging into it.",
        older_environment="HEADWATER_REPLACED_BYTES",
    )
    replaced_memory_bytes: int = _setting(
        "fold.replaced_memory",
        amount(0, MOST),
        "64MB",
        "If such a base and its overlay need more memory than this, the fold merges anyway.",
    )
    segment_age_s: float = _setting(
        "segment.age",
        duration(0, DAY_S),
        "1min",
        "Age at which segments are merged.",
        older_environment="HEADWATER_SEGMENT_AGE_S",
    )
    segment_bytes: int = _setting("segment.bytes", amount(1 << 16, 1 << 30), "64MB", "Size of a merged segment.")
    base_files: int = _setting(
        "base.files", number(1, 1_000_000), "16", "Number of small or dead files at which a base is maintained."
    )
    upkeep_budget: float = _setting(
        "upkeep.budget", part(0.01, 1), "0.1", "Share of time that upkeep of bases may take."
    )
    spark_master: str = _text(
        "spark.master",
        "`local[N]` with N = `spark.slots`",
        "Where Spark runs: `local[N]` is this machine, `spark://host:7077` a cluster.",
        Kind(spark_master),
    )
    spark_slots: int = _setting(
        "spark.slots",
        number(0, 100_000),
        "0",
        "Tasks that run at once: a query gets a third of them, scans and folds a sixth each. "
        "`0`: six per core of this machine; on a cluster a query gets as many tasks as there are cores.",
    )
    spark_driver_memory: int = _setting(
        "spark.driver_memory",
        amount(512 << 20, MOST),
        "2GB",
        "Memory of the Spark driver; with a local master, all the memory Spark has.",
    )
    spark_driver_host: str = _text(
        "spark.driver_host",
        "`127.0.0.1`; on a cluster this machine's name",
        "The address at which a cluster's workers reach the driver.",
    )
    spark_driver_bind: str = _text(
        "spark.driver_bind", "the same as `spark.driver_host`", "The address on which the driver listens."
    )
    spark_python: str = _text(
        "spark.python", "the Python that runs Headwater", "The Python interpreter that Spark's tasks use."
    )
    spark_python_path: str = _text(
        "spark.python_path",
        "this process's own `PYTHONPATH`",
        "The `PYTHONPATH` of a cluster's tasks, if `headwater` is not installed in their Python.",
    )
    spark_secret: str = _text(
        "spark.secret",
        "generated at each start",
        "A cluster's `spark.authenticate.secret`: `file:PATH`, `env:NAME`, or a value.",
        secret=True,
    )
    spark_conf: Mapping[str, str] = field(default_factory=dict)  # `spark.conf.<name>`: any other Spark setting
    file: str = ""  # the file that was read
    arguments: tuple[str, ...] = ()  # to pass the same settings to a child process
    chosen: Mapping[str, Chosen] = field(default_factory=dict)  # values that are not the default

    def __repr__(self) -> str:
        """Without values, because some are secrets."""
        return f"Settings({', '.join(self.chosen)})"


DEFAULTS = Settings()
TABLE: dict[str, tuple[str, Setting]] = {
    f.metadata["setting"].name: (f.name, f.metadata["setting"]) for f in fields(Settings) if "setting" in f.metadata
}
SPARK_CONF = Setting(
    f"{CONF}NAME", TEXT, "", "Any other Spark setting, under its own name.", unset="what Headwater or Spark chooses"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A setting as it is shown, with secrets hidden."""

    name: str
    value: str
    default: str
    set_by: SetBy
    location: str
    meaning: str

    def as_dict(self) -> dict[str, str]:
        return {
            "name": self.name,
            "value": self.value,
            "default": self.default,
            "from": str(self.set_by),
            "place": self.location,
            "meaning": self.meaning,
        }

    @classmethod
    def of(cls, value: Mapping[str, str]) -> Line:
        return cls(
            value["name"],
            value["value"],
            value["default"],
            SetBy(value["from"]),
            value["place"],
            value["meaning"],
        )


def lines(settings: Settings) -> Iterator[Line]:
    """Every setting with its value, where it was set and its meaning."""
    for name, (attribute, setting) in TABLE.items():
        yield _line(settings, name, setting, getattr(settings, attribute))
    for name, value in settings.spark_conf.items():
        secret = Setting(CONF + name, TEXT, "", SPARK_CONF.doc, SPARK_CONF.unset, sensitive(name))
        yield _line(settings, CONF + name, secret, value)


def sensitive(name: str) -> bool:
    """Whether a Spark setting holds a secret, judging by its name."""
    return _SENSITIVE.search(name) is not None


def _line(settings: Settings, name: str, setting: Setting, value: Any) -> Line:
    chosen = settings.chosen.get(name, Chosen(SetBy.DEFAULT, ""))
    default = setting.kind.show(setting.value(setting.default)) if setting.default else ""
    return Line(name, _shown(setting, value), default, chosen.set_by, chosen.location, setting.doc)


def _shown(setting: Setting, value: Any) -> str:
    if setting.unset and not value:
        return ""
    text = setting.kind.show(value)
    if not setting.secret or text.startswith(("env:", "file:")):
        return text
    return re.sub(r"(?<=://).*(?=@)|(?<=\?).*", "***", text) if "://" in text else "***"


def unset(name: str) -> str:
    """What applies without a value, in words."""
    return TABLE[name][1].unset if name in TABLE else SPARK_CONF.unset
