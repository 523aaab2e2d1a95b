"""The options of a MySQL or MariaDB connection."""

from __future__ import annotations

import hashlib

from headwater.settings.values import boolean, one_of, whole
from headwater.source.options import Option, connection

OPTIONS = connection(
    "mysql-cdc",
    "3306",
    "SELECT, REPLICATION SLAVE and REPLICATION CLIENT",
    Option(
        "server.id",
        whole(1, 2**32 - 1),
        "Server ID under which the binlog is read; no replica may use the same one. "
        "By default it is derived from the connection's name.",
    ),
    Option("tinyint1", one_of("bool", "int"), "What `tinyint(1)` becomes: `bool` or `int`.", "bool"),
    Option(
        "cascade.waived",
        boolean,
        "`true`: tables may be followed even if foreign keys change their rows without a trace in the log.",
        "false",
    ),
)


def default_server_id(name: str) -> str:
    """A number for the log's reader that hardly any replica has: from the upper half, which people do not use."""
    return str(2**31 + int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) % (2**31 - 1))
