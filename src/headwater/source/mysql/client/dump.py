"""Requests a server's binlog the way a replica does, over PyMySQL's connection."""

from __future__ import annotations

import hashlib
import struct
import uuid
from dataclasses import dataclass

import pymysql

from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.gtid import Gtids, MysqlGtids
from headwater.source.mysql.client.ask import address_of, query
from headwater.source.mysql.client.refusals import translate
from headwater.source.mysql.client.register import register
from headwater.source.mysql.client.session import Endpoint, Session, is_mariadb, quote_literal

HEARTBEAT_S = 0.25  # how often an idle server reports its position
FILE_HEAD = 4  # where the first event of a binlog file is

_COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x12, 0x1E
_NON_BLOCK, _THROUGH_GTID = 0x01, 0x04
_CHECKSUM_BYTES = 4
_CAPABILITY_GTID = 4  # MariaDB: the replica understands its GTID events
LARGEST_OFFSET = (1 << 32) - 1  # the largest offset that a dump by position can name


@dataclass(frozen=True, slots=True)
class Start:
    """Where a dump begins: at an offset of a file, or (after a failover) after a set of transactions."""

    file: str
    offset: int
    gtids: Gtids | None = None
    from_head: bool = False  # MariaDB does not accept an offset beyond 4 GB: the file is read again from its start


def begin_dump(session: Session, server_id: int, start: Start) -> bool:
    """Turns the session into a dump; returns whether the first events have checksums. Errors come with the flow."""
    checksum = _configure(session, start)
    uuid_text = str(uuid.uuid5(uuid.NAMESPACE_OID, f"headwater {server_id}"))
    query(session, f"SET @slave_uuid = {quote_literal(uuid_text)}, @replica_uuid = {quote_literal(uuid_text)}")
    try:
        register(session, server_id)
        command, argument = _command(session, server_id, start)
        session._execute_command(command, argument)
    except (pymysql.Error, OSError) as e:
        raise translate(address_of(session), e) from e
    return checksum


def file_mark(endpoint: Endpoint, name: str, upto: int) -> str:
    """A file's first events, as far as they end at or before `upto`, to identify it: names are reused."""
    mark = hashlib.blake2b(digest_size=16)
    session = endpoint.connect()
    try:
        checksum = _configure(session, Start(name, FILE_HEAD))
        argument = struct.pack("<IHI", FILE_HEAD, _NON_BLOCK, 0) + name.encode()
        session._execute_command(_COM_BINLOG_DUMP, argument)
        begun = False
        while True:
            packet = session._read_packet().get_all_data()
            event = packet[1:]
            if packet[0] != 0 or len(event) < ev.HEADER_BYTES:
                break  # the end of the file that is being written
            end = int.from_bytes(event[ev.LOG_POS : ev.LOG_POS + 4], "little")
            if event[ev.TYPE] == ev.FORMAT_DESCRIPTION and not begun:
                begun, checksum = True, event[-_CHECKSUM_BYTES - 1] == 1
                event = event[: ev.FLAGS] + event[ev.FLAGS + 2 : -_CHECKSUM_BYTES]  # a flag says that it is in use
            elif not begun or not end or event[ev.TYPE] in (ev.HEARTBEAT, ev.HEARTBEAT_V2):
                continue
            elif checksum:
                event = event[:-_CHECKSUM_BYTES]
            if end > upto or event[ev.TYPE] == ev.ROTATE:
                break
            mark.update(event)
    except (pymysql.Error, OSError) as e:
        raise translate(address_of(session), e) from e
    finally:
        session._force_close()  # the server may still be sending
    return f"{upto}:{mark.hexdigest()}"


def _configure(session: Session, start: Start) -> bool:
    """Sets the session variables that a dump reads, under the names of every version."""
    nanoseconds = int(HEARTBEAT_S * 1e9)
    ((checksum,),) = query(session, "SELECT @@global.binlog_checksum")
    query(session, f"SET @master_heartbeat_period = {nanoseconds}, @source_heartbeat_period = {nanoseconds}")
    query(session, f"SET @master_binlog_checksum = '{checksum}', @source_binlog_checksum = '{checksum}'")
    if is_mariadb(session):
        query(session, f"SET @mariadb_slave_capability = {_CAPABILITY_GTID}")
        if start.gtids is not None:
            query(session, f"SET @slave_connect_state = {quote_literal(str(start.gtids))}")
            query(session, "SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
    return str(checksum).upper() == "CRC32"


def _command(session: Session, server_id: int, start: Start) -> tuple[int, bytes]:
    name = start.file.encode()
    if is_mariadb(session) or (start.gtids is None and start.offset <= LARGEST_OFFSET):
        offset = FILE_HEAD if start.from_head else start.offset
        if start.gtids is not None:
            name, offset = b"", FILE_HEAD
        return _COM_BINLOG_DUMP, struct.pack("<IHI", offset, 0, server_id) + name
    if not isinstance(start.gtids, MysqlGtids):
        head = struct.pack("<HII", 0, server_id, len(name)) + name
        return _COM_BINLOG_DUMP_GTID, head + struct.pack("<Q", start.offset)
    wanted = start.gtids.encode()
    head = struct.pack("<HII", _THROUGH_GTID, server_id, 0)
    return _COM_BINLOG_DUMP_GTID, head + struct.pack("<QI", FILE_HEAD, len(wanted)) + wanted
