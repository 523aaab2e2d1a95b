"""The schema of meta. A change here needs a migration in `store.MIGRATIONS`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 10

metadata = MetaData()
Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite autoincrements only INTEGER PRIMARY KEY

home = Table(
    "home",
    metadata,
    Column("version", Integer, nullable=False),
    Column("lake", Text),  # the id of the lake that this meta describes; NULL until a server has run
)

connection = Table(
    "connection",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("options", Text, nullable=False),  # JSON, without the password
    Column("statement", Text, nullable=False),  # canonical text of the definition
    Column("secret", Text),  # the password as given: a value, env:NAME or file:PATH
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("identity", Text, nullable=False),
    Column("last_index", BigInteger, nullable=False),
    Column("committed_index", BigInteger, nullable=False),
    Column("resume_position", Text, nullable=False),
    Column("position", Text, nullable=False),
    Column("position_at", Float, nullable=False),
    Column("last_txn", BigInteger, nullable=False),
    Column("server_life", Text, nullable=False),
    sqlite_autoincrement=True,  # an id is never reused
)

segment = Table(
    "segment",
    metadata,
    Column("connection_id", Id, primary_key=True),
    Column("first_index", BigInteger, primary_key=True),
    Column("last_index", BigInteger, nullable=False),
    Column("committed_index", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("txn_min", BigInteger, nullable=False),
    Column("txn_max", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),  # for a merged one: of the newest that it contains
    Column("oldest_at", Float),  # for a merged one: of the oldest; NULL: not merged
)

part = Table(
    "part",
    metadata,
    Column("connection_id", Id, primary_key=True),
    Column("segment_index", BigInteger, primary_key=True),  # the segment's first index
    Column("batch", Integer, primary_key=True),
    Column("upstream_id", BigInteger, nullable=False),
    Column("schema_id", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("truncates", BigInteger, nullable=False),
    Column("first_index", BigInteger, nullable=False),
    Column("last_index", BigInteger, nullable=False),
    Index("part_by_table", "connection_id", "upstream_id", "last_index"),
)

retired_segment = Table(  # files that a merged segment replaced; kept while a reader may be about to open them
    "retired_segment",
    metadata,
    Column("path", Text, primary_key=True),
    Column("connection_id", Id, nullable=False),
    Column("retired_at", Float, nullable=False),
)

schema_version = Table(
    "schema_version",
    metadata,
    Column("id", Id, primary_key=True),
    Column("connection_id", Id, nullable=False),
    Column("upstream_id", BigInteger, nullable=False),
    Column("from_index", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("schema_by_table", "connection_id", "upstream_id", "from_index"),
    sqlite_autoincrement=True,  # an id is never reused
)

relation = Table(
    "relation",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("connection_id", Id, nullable=False),
    Column("upstream_schema", Text, nullable=False),
    Column("upstream_table", Text, nullable=False),
    Column("upstream_id", BigInteger, nullable=False),
    Column("columns", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("statement", Text, nullable=False),  # canonical text of the definition, for SHOW CREATE and "name taken"
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("base_path", Text, nullable=False),
    Column("base_version", BigInteger, nullable=False),
    Column("begin_index", BigInteger, nullable=False),
    Column("fingerprint", Text, nullable=False),  # the last accepted look at the upstream table
    Column("planned", Integer, nullable=False),  # 1 once every span of the plan is in meta
    Column("folded_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("control", Text, nullable=False, server_default=""),
    Column("block", BigInteger, nullable=False, server_default="0"),
    Column("replaces", BigInteger, nullable=False, server_default="0"),
    Column("replaced_by", BigInteger, nullable=False, server_default="0"),  # it is read where that one cannot be
    Column("rows_estimate", BigInteger, nullable=False, server_default="-1"),  # when planning began; -1: unknown
    Column("counted_index", BigInteger, nullable=False, server_default="0"),  # notices have counted changes up to it
    Column("schema_version", Integer, nullable=False, server_default="1"),  # of `columns`
    sqlite_autoincrement=True,  # an id is never reused
)

span = Table(
    "span",
    metadata,
    Column("id", Id, primary_key=True),
    Column("relation_id", Id, nullable=False),
    Column("ordinal", Float, nullable=False),  # key order among the spans of a relation; a split takes the middle
    Column("bounds", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("saw", Text),
    Column("high", Text),
    Column("log_index", BigInteger),
    Column("cover_index", BigInteger),
    Column("server_life", Text),
    Column("files", Text),  # what its scan wrote, until they are part of the base
    Column(
        "again", Integer, nullable=False
    ),  # 1: the base may hold rows of an earlier scan, which are removed when it is covered
    Column("rows", BigInteger, nullable=False),
    Column("joined", Integer, nullable=False, server_default="1"),  # the number of planned spans it stands for
    UniqueConstraint("relation_id", "ordinal"),
    Index(
        "span_progress", "relation_id", "state", "ordinal", "rows", "log_index", "joined"
    ),  # progress is summed from the index alone
    sqlite_autoincrement=True,  # an id is never reused
)

epoch = Table(
    "epoch",
    metadata,
    Column("id", Id, primary_key=True),
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,  # an id is never reused
)

cut = Table(
    "cut",
    metadata,
    Column("epoch_id", Id, primary_key=True),
    Column("connection_id", Id, primary_key=True),
    Column("index", BigInteger, nullable=False),
    Column("position", Text, nullable=False),
)

layout = Table(  # a relation's layout from an epoch on, until the next one
    "layout",
    metadata,
    Column("relation_id", Id, primary_key=True),
    Column("epoch_id", Id, primary_key=True),
    Column("body", Text, nullable=False),
)

pin = Table(
    "pin",
    metadata,
    Column("id", Id, primary_key=True),
    Column("epoch_id", Id, nullable=False),
    Column("owner", Text, nullable=False),
    Column("expires_at", Float, nullable=False),
    sqlite_autoincrement=True,  # an id is never reused
)

intent = Table(
    "intent",
    metadata,
    Column("id", Id, primary_key=True),
    Column("relation_id", Id, nullable=False),
    Column("kind", Text, nullable=False),  # cover | fold | upkeep
    Column("body", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,  # an id is never reused
)

run = Table(
    "run",
    metadata,
    Column("id", Id, primary_key=True),
    Column("relation_id", Id, nullable=False),
    Column("first_index", BigInteger, nullable=False),
    Column("last_index", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("missing", Integer, nullable=False),
    Column("truncate_index", BigInteger, nullable=False, server_default="0"),
    Column("schema_version", Integer, nullable=False, server_default="1"),  # of the relation's columns
    # what the base held that rows with missing values refer to; -1: unknown (written by an earlier version)
    Column("base_index", BigInteger, nullable=False, server_default="-1"),
    Column("created_at", Float, nullable=False),
    Column("retired_at", Float),  # merged into another run or folded; kept while a reader may be about to open it
    Column("folded", Integer, nullable=False, server_default="0"),  # 1: layouts from before the fold still use it
    Column("before_path", Text, nullable=False, server_default=""),  # of a view's run: the rows that it replaces
    sqlite_autoincrement=True,  # an id is never reused
)

view = Table(  # what a relation has if it is a materialized view
    "view",
    metadata,
    Column("relation_id", Id, primary_key=True, autoincrement=False),
    Column("query", Text, nullable=False),
    Column("inputs", Text, nullable=False),  # JSON: ids of the relations it reads
    Column("uses", Text, nullable=False),  # JSON: input's id → the columns it uses and their types
    Column("visible", Integer, nullable=False),
    Column("reading", Text, nullable=False),  # JSON: order and limit of the result
    Column("fill", Text, nullable=False, server_default=""),  # JSON: epoch and slices of the fill; empty: none begun
    Column("plain_views", Text, nullable=False, server_default="[]"),  # JSON: names of those that its query names
    Column("input_replaced", Integer, nullable=False, server_default="0"),  # 1: since the last version
)

barrier = Table(  # epochs at which views stop; they are kept like pinned ones
    "barrier",
    metadata,
    Column("number", Id, primary_key=True),
    Column("epoch_id", Id, nullable=False),  # several have the same one if nothing moved between them
    sqlite_autoincrement=True,  # a number is never reused
)

version = Table(  # the view equals its query at the epoch
    "version",
    metadata,
    Column("relation_id", Id, primary_key=True, autoincrement=False),
    Column("epoch_id", Id, primary_key=True, autoincrement=False),
)

refresh = Table(  # what refreshes cost
    "refresh",
    metadata,
    Column("id", Id, primary_key=True),
    Column("relation_id", Id, nullable=False),
    Column("from_epoch", BigInteger, nullable=False),
    Column("to_epoch", BigInteger, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("rows_read", BigInteger, nullable=False),
    Column("rows_changed", BigInteger, nullable=False),
    Column("ms", Float, nullable=False),
    Column("ended_at", Float, nullable=False),
    Index("refresh_by_view", "relation_id", "id"),
    sqlite_autoincrement=True,
)

plain_view = Table(  # CREATE VIEW: a stored query without rows of its own
    "plain_view",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("query", Text, nullable=False),
    Column("inputs", Text, nullable=False),  # JSON: names of the relations and plain views that the query names
    Column("statement", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,
)

notice = Table(
    "notice",
    metadata,
    Column("relation_id", Id, primary_key=True),
    Column("code", Text, primary_key=True),
    Column("text", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("seen_at", Float, nullable=False),
)

lease = Table(
    "lease",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),
)
