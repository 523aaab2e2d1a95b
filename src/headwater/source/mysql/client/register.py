"""How a reader of the log registers with the server."""

from __future__ import annotations

import struct

from pymysql.constants import COMMAND

from headwater.source.mysql.client.session import Session

NAME = b"headwater"  # our readers' name in SHOW REPLICAS


def register(session: Session, server_id: int) -> None:
    """Registers the session as a reader of the log, until it ends; raises the driver's error if the user may not."""
    host = struct.pack("<B", len(NAME)) + NAME
    nobody = b"\0\0"  # no user, no password
    session._execute_command(
        COMMAND.COM_REGISTER_SLAVE, struct.pack("<I", server_id) + host + nobody + struct.pack("<HII", 0, 0, 0)
    )
    session._read_ok_packet()
