"""What binlog framing carries from batch to batch, and what it must know about the server."""

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
    """The last row of an open transaction, held back so that its commit never comes without a row."""

    op: int
    table: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Carried:
    """What binlog framing must know between two batches, in addition to `FramedTo`."""

    position: Position  # names and shift of the files being sent now
    number: int  # of the progress' position
    gtids: Gtids
    group: int = OUTSIDE
    time_us: int = 0  # when the open transaction committed, if its first event says so
    source: bytes = b""  # of the open transaction
    gno: int = 0
    aside: Aside | None = None
    held: Held | None = None
    active: Mapping[int, int] = field(default_factory=dict)  # table number → ordinal
    described: Mapping[int, tuple[int, tuple[LogColumn, ...]]] = field(default_factory=dict)  # table → ordinal, columns


@dataclass(frozen=True, slots=True)
class Sender:
    """What framing must know about the server that sends the log.

    `position` is any one in its binlog, for file names and the shift. `fold_names`: it compares table names
    case-insensitively and writes them in lower case. `database` is the one whose tables are followed.
    `hides_cascades`: rows that foreign keys change are not in its log, and nobody has waived them.
    """

    position: Position
    mariadb: bool
    database: str
    fold_names: bool = False
    hides_cascades: bool = True
