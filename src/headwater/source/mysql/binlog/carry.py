"""What framing a binlog carries from batch to batch, and what it must know of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model import LogColumn
from headwater.source.mysql.binlog.events import OUTSIDE
from headwater.source.mysql.binlog.gtid import Gtids
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.binlog.xa import Aside


@dataclass(frozen=True, slots=True)
class Held:
    """The last row of an open transaction, kept back so that its commit never comes without a row."""

    op: int
    table: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Carried:
    """What framing a binlog must know between two batches, beside `FramedTo`."""

    place: Position  # names and shift of the files that flow now
    number: int  # of the progress' position
    gtids: Gtids
    group: int = OUTSIDE
    time_us: int = 0  # when the open transaction committed, if its beginning said so
    source: bytes = b""  # of the open transaction
    gno: int = 0
    aside: Aside | None = None
    held: Held | None = None
    active: Mapping[int, int] = field(default_factory=dict)  # table number → slot
    described: Mapping[int, tuple[int, tuple[LogColumn, ...]]] = field(default_factory=dict)  # table → slot, columns


@dataclass(frozen=True, slots=True)
class Server:
    """What framing must know of the server that sends the log.

    `place` is any position in its binlog, for the names of files and the shift. `fold_names`: it compares names of
    tables without regard to case, and writes them in lower case. `database` is the one whose tables are followed.
    `hides_cascades`: rows that foreign keys change are not in its log, and nobody has waived them.
    """

    place: Position
    mariadb: bool
    database: str
    fold_names: bool = False
    hides_cascades: bool = True
