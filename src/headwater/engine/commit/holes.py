"""Keys that must be scanned again: a change moved a row there without its out-of-line columns, and nothing has them."""

from __future__ import annotations

import pyarrow as pa

from headwater.backfill.span import locate, one_key
from headwater.decode.literals import key_texts
from headwater.engine.commit import epoch
from headwater.engine.home import Home
from headwater.meta import relations, spans
from headwater.model import RelationInfo, TableState
from headwater.ownership.lease import Lease


def scan_again(home: Home, lease: Lease, relation: RelationInfo, keys: pa.Table) -> bool:
    """Removes the keys from the covered spans (they are hidden until rescanned) and publishes an epoch.

    If keys cannot be ordered outside the database, it is unknown which span holds a key: the whole table is hidden and
    read again under one snapshot, in which every row has exactly one key.
    """
    with home.meta.owned(lease) as c:
        current = relations.get_or_none(c, relation.id)
        if current is None or current.state is TableState.FAILED:
            return False  # dropped or stopped meanwhile
        if relation.ordered:
            texts = list(zip(*(key_texts(keys[k]) for k in relation.key), strict=True))
            for i, text in enumerate(texts):
                covered = spans.readable(c, relation.id)
                place = int(locate([s.span for s in covered], relation.key_columns, keys.slice(i, 1))[0])
                if place >= 0:
                    spans.punch(c, covered[place].id, one_key(text))
        else:
            spans.read_all_again(c, relation.id)
        relations.set_state(c, relation.id, TableState.FILLING)
        epoch.publish(c, [relation.id])
    return True
