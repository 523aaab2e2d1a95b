"""The binlog: where each row image stands, of which table and transaction. Values stay raw.

`batch` one batch, walked by `kernels` · `groups`, `xa` transactions · `tablemap`, `maps`, `tables`, `history` tables
as the log describes them · `images`, `partial`, `jsondiff` rows · `written` what a batch becomes · `carry`, `state`
from batch to batch · `position`, `gtid` places · `events`, `codes` numbers
"""
