"""The binlog's events by number, and the layout of a message."""

from __future__ import annotations

from headwater.source.base import EPOCH_S

NUMBER_BYTES = 8  # a message begins with the number of the position after its event
HEADER_BYTES = 19
BODY = NUMBER_BYTES + HEADER_BYTES  # where an event's body begins in a message
TIME, TYPE, SERVER, SIZE, LOG_POS, FLAGS = 0, 4, 5, 9, 13, 17  # in an event's header
ARTIFICIAL = 0x20  # a header flag: the event is in no file

QUERY = 2
ROTATE = 4
FORMAT_DESCRIPTION = 15
XID = 16
EXECUTE_LOAD_QUERY = 18
TABLE_MAP = 19
WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1 = 23, 24, 25
INCIDENT = 26
HEARTBEAT = 27
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 30, 31, 32
GTID = 33
ANONYMOUS_GTID = 34
XA_PREPARE = 38
PARTIAL_UPDATE_ROWS = 39
TRANSACTION_PAYLOAD = 40
HEARTBEAT_V2 = 41
GTID_TAGGED = 42

MARIA_GTID = 162
MARIA_START_ENCRYPTION = 164
MARIA_QUERY_COMPRESSED = 165
MARIA_ROWS_COMPRESSED_V1 = 166  # write, update, delete: 166, 167, 168
MARIA_ROWS_COMPRESSED = 169  # write, update, delete: 169, 170, 171
MARIA_COMPRESSED_LAST = 171

# flags of MariaDB's GTID event
STANDALONE = 1  # the group is one statement and has no COMMIT
GROUP_COMMIT_ID = 2
PREPARED_XA = 64
COMPLETED_XA = 128

# group states: between transactions, inside one, after a GTID event that does not yet say what it begins
OUTSIDE, INSIDE, EXPECTING = 0, 1, 2
EPOCH_US = EPOCH_S * 1_000_000
