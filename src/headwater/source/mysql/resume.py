"""Checks at every connect that the upstream still has everything after our position, or raises."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.errors import SourceError
from headwater.source.base import Standing
from headwater.source.mysql.binlog import gtid
from headwater.source.mysql.binlog.gtid import Gtids, MariaGtids, MysqlGtids
from headwater.source.mysql.binlog.position import OFFSET_BITS, Position
from headwater.source.mysql.client.ask import query
from headwater.source.mysql.client.dump import FILE_HEAD, LARGEST_OFFSET, Start, file_mark
from headwater.source.mysql.client.session import Endpoint, Session
from headwater.source.mysql.server import ServerFacts, describe_server, log_files, no_log

START_OVER = "Resync: DROP CONNECTION … CASCADE, then run its CREATE statements again."
MARK_BYTES = 16 << 10  # how much of a file is compared: its first transactions have unique times and numbers


@dataclass(frozen=True, slots=True)
class Resumption:
    """The server that answers, where its log begins for us, and a place in its binlog (for names and shift)."""

    standing: Standing
    start: Start
    position: Position
    facts: ServerFacts


def check(endpoint: Endpoint, session: Session, position: Position, identity: dict[str, str]) -> Resumption:
    """The server that answers, after checking that a dump after `position` leaves no gap."""
    facts = describe_server(session)
    if not facts.log_bin:
        raise no_log()
    files = log_files(session)
    if not files:
        raise no_log()
    first = Position.of(files[0][0], FILE_HEAD)
    same = identity.get("server", facts.server) == facts.server
    # another server's file numbers continue after the last one that we have seen
    shift = int(identity.get("shift", "0")) if same else (position.number >> OFFSET_BITS) + 1 - first.file
    ours = gtid.parse(position.gtids)
    new = {**identity, **facts.identity, "shift": str(shift)}
    if not same or position.shift != shift or (shift and ours is not None):
        start = _by_transactions(session, facts, position, ours)
        for key in ("file", "file_mark"):
            new.pop(key, None)
    else:
        _check_reset(endpoint, identity, files)
        _check_files(position, files)
        if ours is not None:
            _check_executed(session, ours, reset("its list of transactions lacks some that we have read"))
        mark = file_mark(endpoint, position.name, min(position.offset, MARK_BYTES))
        new |= {"file": position.name, "file_mark": mark}
        start = Start(position.name, position.offset, from_head=facts.is_mariadb and position.offset > LARGEST_OFFSET)
    place = Position(first.base, first.file, first.digits, FILE_HEAD, shift)
    return Resumption(Standing(identity=new, life=facts.life, next_txn=0), start, place, facts)


def _check_reset(endpoint: Endpoint, identity: dict[str, str], files: list[tuple[str, int]]) -> None:
    """Raises unless a file that we have read and that still exists begins as it did: names are reused."""
    name, mark = identity.get("file", ""), identity.get("file_mark", "")
    if mark and name in dict(files) and file_mark(endpoint, name, int(mark.split(":")[0])) != mark:
        raise reset(f"its file {name} is not the one that we read")


def _check_files(position: Position, files: list[tuple[str, int]]) -> None:
    sizes = dict(files)
    if position.name in sizes:
        if sizes[position.name] < position.offset:
            raise reset(f"its file {position.name} ends before our position {position.offset}")
        return
    numbers = [Position.of(name, 0).file for name in sizes]
    if min(numbers) > position.file:
        raise purged(f"{position.name} is gone, {files[0][0]} is the oldest one left")
    raise reset(f"it has no file {position.name}")


def _by_transactions(session: Session, facts: ServerFacts, position: Position, ours: Gtids | None) -> Start:
    """The start on another server than the one whose files our position names: only transaction numbers can be used."""
    if ours is None:
        raise replaced("without GTIDs our place in its log cannot be found")
    if isinstance(ours, MariaGtids) != facts.is_mariadb:
        raise replaced(f"it is {facts.version_text} now")
    _check_executed(session, ours, replaced("it lacks transactions that we have read"))
    if isinstance(ours, MysqlGtids):
        ((gone,),) = query(session, "SELECT @@global.gtid_purged")
        if not MysqlGtids.parse(gone).within(ours):
            raise purged("the binlogs of transactions that we have not read are gone")
    return Start("", FILE_HEAD, ours)


def _check_executed(session: Session, ours: Gtids, otherwise: SourceError) -> None:
    """Raises unless the server has all of our transactions. A commit is in the log before it counts as executed."""
    if isinstance(ours, MariaGtids):
        ((state,),) = query(session, "SELECT @@global.gtid_binlog_state")
        has = {(int(d), int(s)): int(n) for d, s, n in (part.split("-") for part in state.split(",") if part)}
        if any(has.get((domain, server), -1) < number for domain, (server, number) in ours.last.items()):
            raise otherwise
        return
    # read before the executed ones, so that nothing falls between
    ((owned,),) = query(session, "SELECT @@global.gtid_owned")
    ((executed,),) = query(session, "SELECT @@global.gtid_executed")
    if not ours.within(MysqlGtids.parse(executed).union(parse_owned(owned))):
        raise otherwise


def parse_owned(text: str) -> MysqlGtids:
    """The transactions in progress: `uuid[:tag]:number#session:…`."""
    return MysqlGtids.parse(re.sub(r"#\d+", "", text))


def replaced(why: str) -> SourceError:
    """The error for another server."""
    return SourceError("source.replaced", f"another server answers at this address: {why}", START_OVER)


def reset(why: str) -> SourceError:
    """The error for the same server with another log."""
    return SourceError("source.slot_lost", f"the upstream's binlog was reset: {why}", START_OVER)


def unreadable(why: str) -> SourceError:
    """The error for a log that the server itself cannot send from our position on."""
    return SourceError("source.slot_lost", f"the upstream cannot send its binlog after our position: {why}", START_OVER)


def purged(why: str) -> SourceError:
    """The error for a log that begins after our position."""
    return SourceError(
        "source.slot_lost",
        f"the upstream has purged binlogs that we have not read: {why}",
        f"Raise binlog_expire_logs_seconds (expire_logs_days before MariaDB 10.6). {START_OVER}",
    )
