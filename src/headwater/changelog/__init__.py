"""Changelog: the durable, ordered log of a connection's committed changes.

In: raw log messages (`source.base.Inbox`). Out: segments, one Arrow file each, published by a row in meta; readers by
table and index range; the Debezium-shaped view.
Guarantees: each committed change gets one index, once, in commit order, without gaps; a segment is durable before it is
published and published before it is acknowledged; a segment ends at a commit or is a piece of one open transaction.
Never: decodes values, holds a transaction in memory, acknowledges anything.

`segment` the file format · `writer` inbox → published segment · `reader` the way back
· `envelope` the Debezium view · `retention` what can be removed · `merge` old segments into larger ones · `memory` what
framing must remember
"""
