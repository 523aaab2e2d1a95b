"""The statements as values. Their meaning is defined here; `parse` defines their syntax."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from enum import StrEnum

from headwater.config import Secret
from headwater.sql.options import OptionKind, shown


class Listing(StrEnum):
    """What SHOW lists."""

    CONNECTIONS = "connections"
    TABLES = "tables"
    MATERIALIZED_VIEWS = "materialized views"
    VIEWS = "views"
    BACKFILLS = "backfills"
    METRICS = "metrics"
    EPOCHS = "epochs"
    SEGMENTS = "segments"
    HOLDS = "holds"
    QUERIES = "queries"


class ObjectKind(StrEnum):
    """The kinds of named objects."""

    CONNECTION = "connection"
    TABLE = "table"
    MATERIALIZED_VIEW = "materialized view"
    VIEW = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement: its text as written and its first line. The text may hold a secret: no repr shows it."""

    text: str = field(default="", repr=False, compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConnection(Statement):
    """CREATE CONNECTION. `options` are validated, include defaults and exclude the password, which is `secret`."""

    name: str
    options: dict[str, str]
    secret: Secret | None = None
    if_not_exists: bool = False

    def canonical(self) -> str:
        """The definition in canonical form; two definitions are equal iff these texts (and the secrets) are."""
        return f"CREATE CONNECTION {quote_name(self.name)} WITH (\n{_options('connection', self.options)}\n)"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A declared column: its type as written."""

    name: str
    type: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE … FROM CONNECTION.

    `columns` None = the upstream's; `key` empty = the upstream's. `upstream` is (schema, table), schema None = the
    connection's `schema.name`; upstream None = the table of the same name.
    """

    name: str
    connection: str
    columns: tuple[ColumnSpec, ...] | None = None
    key: tuple[str, ...] = ()
    upstream: tuple[str | None, str] | None = None
    options: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False

    def canonical(self) -> str:
        """The definition in canonical form; two definitions are equal iff these texts are."""
        text = f"CREATE TABLE {quote_name(self.name)} "
        if self.columns is not None or self.key:
            lines = (
                ["*"] if self.columns is None else [f"{quote_name(c.name)} {one_form(c.type)}" for c in self.columns]
            )
            if self.key:
                lines.append(f"PRIMARY KEY ({', '.join(quote_name(k) for k in self.key)})")
            text += "(\n" + ",\n".join(f"    {line}" for line in lines) + "\n) "
        text += f"FROM CONNECTION {quote_name(self.connection)}"
        if self.upstream is not None:
            text += " TABLE " + ".".join(quote_name(part) for part in self.upstream if part is not None)
        options = _options("table", self.options)
        return f"{text} WITH (\n{options}\n)" if options else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConnection(Statement):
    """DROP CONNECTION; `cascade` also drops its tables."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Statement):
    """DROP TABLE; `cascade` also drops its dependents."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView(Statement):
    """DROP VIEW or DROP MATERIALIZED VIEW; `cascade` also drops the views over it."""

    kind: ObjectKind
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """SHOW and the name of a listing."""

    kind: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    """SHOW CREATE CONNECTION, TABLE, MATERIALIZED VIEW or VIEW."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE a table or a view: columns, types, key."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Statement):
    """FOLD TABLE or FOLD MATERIALIZED VIEW: folds the overlay into the base now."""

    name: str
    kind: ObjectKind = ObjectKind.TABLE


class BackfillVerb(StrEnum):
    """What can be done to a running backfill."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    CANCEL = "CANCEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlBackfill(Statement):
    """PAUSE, RESUME or CANCEL BACKFILL of a table."""

    verb: BackfillVerb
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView(Statement):
    """PAUSE or RESUME MATERIALIZED VIEW: whether it is filled and refreshed."""

    pause: bool
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelQuery(Statement):
    """CANCEL QUERY: ends a query that SHOW QUERIES lists."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable(Statement):
    """ALTER TABLE … SET: options that take effect while the table runs; `options` holds only the given ones."""

    name: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterView(Statement):
    """ALTER MATERIALIZED VIEW … SET; `options` holds only the given ones."""

    name: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshView(Statement):
    """REFRESH MATERIALIZED VIEW: computes a new copy from scratch, and swaps it in when that is complete."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncTable(Statement):
    """RESYNC TABLE: builds a new copy of the table, which replaces it when complete."""

    name: str


@dataclass(frozen=True, slots=True)
class ChangelogCall:
    """`changelog('connection', …)` in a query; `start` and `end` are offsets into the query's `spark_text`."""

    start: int
    end: int
    connection: str
    table: str | None = None
    from_index: int | None = None
    to_index: int | None = None


@dataclass(frozen=True, slots=True)
class ChangesCall:
    """`changes('relation', …)` in a query: its net change between two epochs. Places are those of a ChangelogCall."""

    start: int
    end: int
    relation: str
    from_epoch: int | None = None
    to_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """A query for Spark.

    `spark_text` is what Spark reads: the text as written, `//` comments blanked. `identifiers` are the names in it, in
    lower case (Spark's names are case-insensitive), and those in `changes(…)`: a relation not among them cannot be
    meant. `calls` are in the order of the text.
    """

    spark_text: str
    identifiers: frozenset[str] = frozenset()
    calls: tuple[ChangelogCall | ChangesCall, ...] = ()

    @property
    def changelog_calls(self) -> tuple[ChangelogCall, ...]:
        return tuple(call for call in self.calls if isinstance(call, ChangelogCall))

    def with_views(self, views: tuple[str, ...]) -> str:
        """The text for Spark with a view name in place of each call."""
        text = self.spark_text
        for call, view in reversed(list(zip(self.calls, views, strict=True))):
            text = text[: call.start] + view + text[call.end :]
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMaterializedView(Statement):
    """CREATE MATERIALIZED VIEW … AS query. `options` are validated and include defaults."""

    name: str
    query: Query
    options: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False

    def canonical(self) -> str:
        """The definition with its options in canonical form, and the query as it was written."""
        options = _options("materialized view", self.options)
        given = f" WITH (\n{options}\n)" if options else ""
        return f"CREATE MATERIALIZED VIEW {quote_name(self.name)}{given} AS\n{self.query.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Statement):
    """CREATE VIEW … AS query: a plain view, which has no rows of its own."""

    name: str
    query: Query
    if_not_exists: bool = False

    def canonical(self) -> str:
        """The definition, with the query as it was written."""
        return f"CREATE VIEW {quote_name(self.name)} AS\n{self.query.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN of a query; `mode` is empty, EXTENDED, FORMATTED, COST or CODEGEN."""

    query: Query
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView(Statement):
    """EXPLAIN MATERIALIZED VIEW: how it is kept up to date, operator by operator."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Statement):
    """BEGIN: the definitions up to COMMIT are stored all or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Statement):
    """COMMIT: stores the definitions since BEGIN."""


Definition = CreateConnection | CreateTable | CreateMaterializedView | CreateView

# Words that would be parsed as grammar where a name is expected; such names are printed in quotes.
GRAMMAR_WORDS = frozenset({"AS", "CONSTRAINT", "CONNECTION", "FROM", "IF", "NOT", "PRIMARY", "TABLE", "WITH"})


def quote_name(name: str) -> str:
    """A name in the form our statements accept."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in GRAMMAR_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A string in the form our statements accept: `''` is a quote, a backslash has no special meaning."""
    return "'" + text.replace("'", "''") + "'"


def one_form(type: str) -> str:
    """A type's text in canonical form: lower case, single blanks."""
    text = re.sub(r"\s+", " ", type.strip()).lower()
    return re.sub(r" ?([(),<>\[\]]) ?", r"\1", text)


def difference(stored: str, given: str) -> str:
    """The lines in which two canonical texts differ: `- stored`, `+ given`."""
    lines = difflib.ndiff(stored.splitlines(), given.splitlines())
    return "\n".join(line for line in lines if line.startswith(("- ", "+ ")))


def _options(kind: OptionKind, options: dict[str, str]) -> str:
    values = shown(kind, options)
    return ",\n".join(f"    {name} = {quote_text(value)}" for name, value in values.items())
