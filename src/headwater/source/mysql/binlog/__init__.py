"""The binlog: where each row image is, its table and its transaction. Values stay raw.

`batch` one batch, walked by `kernels` · `groups`, `xa` transactions · `tablemap`, `maps`, `tables`, `history` tables
as the log describes them · `images`, `partial`, `jsondiff` rows · `written` the output of a batch · `carry`, `state`
from batch to batch · `position`, `gtid` places · `events`, `codes` numbers
In: events as bytes. Out: frames: rows, transactions, descriptions of tables. Guarantees: a batch may be framed again.
Never: decodes a value, or contacts the server except for names that the log lacks.
"""
