"""The database that a connection's type stands for."""

from __future__ import annotations

import importlib

from headwater.errors import SqlError
from headwater.source.mysql.upstream import MysqlUpstream
from headwater.source.postgres.upstream import PostgresUpstream
from headwater.source.upstream import Upstream

KERNELS = ("postgres.frame", "mysql.binlog.groups", "mysql.binlog.kernels", "mysql.client.packets", "mysql.client.rows")
KINDS: dict[str, type[Upstream]] = {"postgres-cdc": PostgresUpstream, "mysql-cdc": MysqlUpstream}


def kind(type: str) -> type[Upstream]:
    """The implementation for a connection type."""
    if type not in KINDS:
        raise SqlError(
            "sql.bad_option", f"there is no connection type {type!r}", f"Use one of: {', '.join(sorted(KINDS))}."
        )
    return KINDS[type]


def compile_kernels() -> None:
    """Fills the disk cache of the kernels that read logs and rows: importing them compiles them."""
    for module in KERNELS:
        importlib.import_module(f"headwater.source.{module}")
