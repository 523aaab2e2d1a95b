"""MySQL and MariaDB, as the suites run over them."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pymysql
import pytest

from headwater.decode.mysql.texts import float_text
from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import MachineError
from headwater.model import Column
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.session import quote_identifier
from support import (
    capture_mysql,
    mysql_hanging,
    mysql_keys,
    mysql_scan,
    mysql_types,
    mysql_values,
    writer_mysql,
)
from support.commit_log import MysqlCommits
from support.mysql import EmbeddedMySQL, MyDatabase
from support.random_values import MYSQL
from support.scanned import Bench
from support.upstreams.base import Can, Upstream, end_prepared
from support.writing import Dialect, Shape

NO_XID = 1397
DEADLOCK = 1213


def _types(flavour: str) -> dict[str, tuple[str, tuple[tuple[str, Any], ...]]]:
    return {case.ddl: (case.lake, case.values) for case in mysql_types.cases(flavour)}


def _shapes(flavour: str) -> dict[str, mysql_keys.Shape]:
    return {name: shape for name, shape in mysql_keys.SHAPES.items() if flavour in shape.flavours}


class Mysql(Upstream):
    """MySQL; MariaDB differs in what it declares."""

    name = "mysql"
    type = "mysql-cdc"
    connection = "my"
    shared = "mysql"
    fixture = "mysql_database"
    marker = "mysql"
    can = Can(keep_prepared=True, tell_moments=True)
    errors = (pymysql.Error, OSError)
    rewrite = ("SET lock_wait_timeout = 20", "ALTER TABLE parts TRUNCATE PARTITION mid")
    shout = (  # as online schema changes do
        "CREATE TABLE {0}_new LIKE {0}",
        "INSERT INTO {0}_new SELECT id, CONCAT(v, '!') FROM {0}",
        "RENAME TABLE {0} TO {0}_old, {0}_new TO {0}",
    )
    retype = "ALTER TABLE {0} MODIFY v blob"
    widen = "ALTER TABLE {0} MODIFY id bigint"
    log_grants: ClassVar[tuple[str, ...]] = (
        "GRANT SELECT ON `{0}`.*",
        "GRANT REPLICATION CLIENT ON *.*",
        "GRANT REPLICATION SLAVE ON *.*",
    )
    strangers = ({"server": "some other"},)
    endings = ("KILL QUERY {0}", "KILL CONNECTION {0}")
    formed = "id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int NOT NULL, w varchar(20)"
    reforms = (
        ("ALTER TABLE t MODIFY v varchar(20)", "data.schema_changed"),
        ("ALTER TABLE t MODIFY w varchar(20) CHARACTER SET latin1", "data.schema_changed"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "data.schema_changed"),
        ("ALTER TABLE t MODIFY id varchar(9) COLLATE utf8mb4_bin", "data.schema_changed"),
        ("DROP TABLE t", "data.rewritten"),
    )
    lossy_key = ("date", "'0000-00-00'", "'2020-01-01'")
    replaced = ("TRUNCATE t", "ALTER TABLE t ENGINE = InnoDB", "ALTER TABLE t MODIFY v bigint")
    lengthen = "ALTER TABLE t MODIFY v varchar(10)"
    partitions = ("CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY HASH (id) PARTITIONS 3",)
    types = _types("mysql")
    random_values = MYSQL
    type_session = (mysql_types.SESSION,)
    table_tail = mysql_types.TABLE
    large_column = "longtext"
    large = "repeat(sha2(rand(), 256), 50)"
    key_shapes = _shapes("mysql")
    costly_shapes = ("int_sparse", "text", "three_columns", "four_columns", "enum", "unique_alone")
    costly_shapes += ("unique_among_others",)
    server_class: ClassVar[type[EmbeddedServer]] = EmbeddedMySQL
    hanging_server: ClassVar[Callable[[], contextlib.AbstractContextManager[EmbeddedServer]]] = staticmethod(
        mysql_hanging.mysql
    )
    reset_log: ClassVar[str] = "RESET BINARY LOGS AND GTIDS"
    bytewise = "utf8mb4_0900_bin"
    uuid_type = "binary(16)"
    moods: ClassVar[tuple[str, ...]] = (
        "SET SESSION binlog_transaction_compression = ON",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )

    def __init__(self, database: Any) -> None:
        super().__init__(database)
        self._asked = 0  # rows that the server has read because it was asked how many it read

    @classmethod
    @contextlib.contextmanager
    def serve(cls, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        with cls.server_class(dict(settings or {}), database="own") as server:
            yield cls(MyDatabase(server, "own"))

    @classmethod
    def is_here(cls) -> bool:
        try:
            cls.server_class.find()
        except MachineError:
            return False
        return True

    @staticmethod
    def uuid_value(value: uuid.UUID) -> Any:
        return value.bytes

    @property
    def schema(self) -> str:
        return str(self.database.name)

    @property
    def options(self) -> dict[str, str]:
        found: dict[str, str] = self.database.options
        return {**found, "server.id": "3000000001"}

    @contextlib.contextmanager
    def login(self, name: str) -> Iterator[None]:
        self.execute(f"CREATE USER {self.account(name)} IDENTIFIED BY '{name}'")
        try:
            yield
        finally:
            self.execute(f"DROP USER {self.account(name)}")

    @classmethod
    @contextlib.contextmanager
    def serve_shapes(cls, request: pytest.FixtureRequest) -> Iterator[Self]:
        server = request.getfixturevalue(cls.shared)
        server.execute("CREATE DATABASE shapes")
        yield cls(MyDatabase(server, "shapes"))
        server.execute("DROP DATABASE shapes")

    def shaped(self, home: Path, shape: mysql_keys.Shape) -> Bench:
        mysql_keys.fill(self.database, shape)
        return self.bench(home, shape.table)

    def add_shaped(self, table: Bench, shape: mysql_keys.Shape, numbers: Iterable[int]) -> None:
        mysql_keys.add(self.database, shape, numbers)

    @staticmethod
    def quote(name: str) -> str:
        return quote_identifier(name)

    @classmethod
    @contextlib.contextmanager
    def serve_hanging(cls, request: pytest.FixtureRequest) -> Iterator[Self]:
        request.getfixturevalue(cls.shared)  # skipped, and told, where it cannot run
        with cls.hanging_server() as server:
            yield cls(MyDatabase(server, server.database))

    def another(self, name: str) -> Self:
        self.server.execute(f"CREATE DATABASE {name}")
        return type(self)(MyDatabase(self.server, name))

    def drop(self) -> None:
        self.server.execute(f"DROP DATABASE IF EXISTS {self.database.name}")

    def replaced_servers(self, identity: dict[str, str], position: str) -> list[tuple[dict[str, str], str]]:
        strange = "0-77-1" if " 0-" in position else "11111111-1111-1111-1111-111111111111:1-5"
        return [({**identity, "server": "another"}, f"{position.split()[0]} {strange}")]

    @contextlib.contextmanager
    def hanging_commit(self, *statements: str) -> Iterator[Callable[[], None]]:
        with mysql_hanging.hanging_commit(self.database, *statements) as release:
            yield release

    @staticmethod
    def account(user: str) -> str:
        return f"'{user}'@'127.0.0.1'"

    def grant_select(self, table: str, user: str) -> None:
        self.execute(f"GRANT SELECT ON {table} TO {self.account(user)}")

    def bench(self, home: Path, table: str, **options: Any) -> Bench:
        return mysql_scan.bench(self.database, home, table, **options)

    def columns(self, table: str, declared: Mapping[str, str] | None = None) -> tuple[Column, ...]:
        return mysql_values.columns_of(self.database, table, dict(declared or {}))

    def prepare_capture(self) -> capture_mysql.Upstream:
        return capture_mysql.Upstream.prepare(self.database)

    def capture_writers(self, seed: int, threads: int = 2, *, crashes: bool = False) -> capture_mysql.Writers:
        return capture_mysql.Writers(self.database, seed, threads, moods=self.moods, two_phase=not crashes)

    def pause(self, seconds: float) -> None:
        self.execute(f"SELECT sleep({seconds})")

    def clock(self, ahead_s: float = 0) -> str:
        found = self.execute(f"SELECT utc_timestamp(6) + INTERVAL {int(ahead_s * 1e6)} MICROSECOND")[0][0]
        return f"{found.isoformat()}+00:00"

    def commit_log(self) -> MysqlCommits:
        self.execute("FLUSH BINARY LOGS")
        return MysqlCommits(self.database, Position.parse(self.seam().position()))

    def log(self, table: str) -> mysql_values.TableLog:
        return mysql_values.TableLog(self.database, table)

    @property
    def shapes(self) -> dict[str, Shape]:
        return writer_mysql.shapes(self.uuid_value)

    @property
    def dialect(self) -> Dialect:
        return writer_mysql.MysqlDialect(self.database.connect, self.shapes, self.moods)

    def create_schema(self, *, rows: int, seed: int) -> None:
        for statement in writer_mysql.schema(self.bytewise, self.uuid_type):
            self.execute(statement)
        pick = random.Random(seed)
        with self.dialect.connect(pick, "first") as session, session.transaction():
            for table, shape in self.shapes.items():
                for _ in range(rows):
                    session.upsert(table, shape, shape.row(pick))

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[str], object]]:
        with self.database.connect() as connection, connection.cursor() as cursor:
            yield cursor.execute

    @staticmethod
    def is_deadlock(error: Exception) -> bool:
        return error.args[:1] == (DEADLOCK,)

    def store(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        listed = (f"({', '.join([str(i), *('NULL' if v is None else v for v in row)])})" for i, row in enumerate(rows))
        self.run(f"INSERT INTO {table} VALUES {', '.join(listed)}")

    def printed(self, table: str, column: Column) -> list[str | None]:
        name, type_ = column.name, column.upstream
        if type_.name in ("float", "double"):
            rows = self.execute(f"SELECT {name} * 1e0 FROM {table} ORDER BY id")
            return [None if v is None else float_text(v) for (v,) in rows]
        expression = f"CONCAT({name})"
        if type_.name == "bit":
            expression = f"CONCAT('0x', HEX(CAST({name} AS BINARY)))"
        elif type_.charset == "binary" or type_.name in ("geometry", "vector"):
            expression = f"CONCAT('0x', HEX({name}))"
        elif type_.unsigned and type_.name != "decimal":
            expression = f"CONCAT({name} + 0)"
        rows = self.execute(f"SELECT CONVERT({expression} USING utf8mb4) FROM {table} ORDER BY id")
        return [v.decode() if isinstance(v, bytes) else v for (v,) in rows]

    def lenient(self, statement: str) -> None:
        with self.session() as run:
            run("SET sql_mode = ''")
            run(statement)

    def commit(self, *statements: str) -> int:
        seam = self.seam()
        begins = seam.number(seam.position())
        with self.session() as run:
            run("START TRANSACTION")
            for statement in statements:
                run(statement)
            run("COMMIT")
        return begins

    @contextlib.contextmanager
    def locked(self, table: str) -> Iterator[None]:
        with self.session() as run:
            run(f"LOCK TABLES {table} WRITE")
            yield
            run("UNLOCK TABLES")

    def processes(self) -> list[tuple[Any, ...]]:
        """(number, state, statement) of each session of this database that runs one."""
        return [(r[0], r[6], r[7]) for r in self.execute("SHOW FULL PROCESSLIST") if r[3] == self.database.name]

    def scanning(self) -> list[int]:
        return [id for id, _, text in self.processes() if text and text.startswith("SELECT scanned")]

    def waits(self, statement: str) -> bool:
        return any(text == statement and "lock" in (state or "") for _, state, text in self.processes())

    def rows_read(self, table: str) -> int:
        """Of all tables, so nothing else may be read meanwhile; what the question itself costs is left out."""
        first, second = self._handler_reads(), self._handler_reads()
        self._asked += 2 * (second - first)
        return second - self._asked

    def _handler_reads(self) -> int:
        found = self.execute("SHOW GLOBAL STATUS LIKE 'Handler_read_%'")
        return sum(int(v) for k, v in found if k.lower() in ("handler_read_next", "handler_read_rnd_next"))

    def analyse(self, table: str) -> None:
        self.execute(f"ANALYZE TABLE {table}")

    def numbers(self, rows: int) -> str:
        return writer_mysql.numbers(1, rows)

    def truncate(self, *tables: str) -> None:
        for table in tables:
            self.execute(f"TRUNCATE TABLE {table}")

    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        name = f"'held {uuid.uuid4().hex}'"
        prepare = prepare and self.can.keep_prepared
        with self.session() as run:
            run(f"XA START {name}" if prepare else "START TRANSACTION")
            for statement in self.held:
                run(statement)
            if prepare:
                run(f"XA END {name}")
                run(f"XA PREPARE {name}")
            wait()
            if not prepare:
                run("COMMIT" if commit else "ROLLBACK")
        if prepare:  # it outlives its session, and the server
            end = "COMMIT" if commit else "ROLLBACK"
            end_prepared(self, f"XA {end} {name}", lambda e: e.args[0] == NO_XID)
        self.execute("DELETE FROM whole WHERE id = 1000000")


class MariaDB(Mysql):
    name = "mariadb"
    shared = "mariadb"
    fixture = "mariadb_database"
    marker = "mariadb"
    can = Can(judge_hidden=True)
    log_grants = ("GRANT SELECT ON `{0}`.*", "GRANT BINLOG MONITOR ON *.*", "GRANT REPLICATION SLAVE ON *.*")
    hanging_server = staticmethod(mysql_hanging.mariadb)
    types = _types("mariadb")
    key_shapes = _shapes("mariadb")
    server_class = EmbeddedMariaDB
    reset_log: ClassVar[str] = "RESET MASTER"
    bytewise = "utf8mb4_nopad_bin"
    uuid_type = "uuid"
    moods: ClassVar[tuple[str, ...]] = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",)

    @staticmethod
    def uuid_value(value: uuid.UUID) -> Any:
        return str(uuid.UUID(int=value.int, version=4))  # others are refused
