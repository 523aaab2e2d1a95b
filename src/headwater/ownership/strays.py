"""Strays: files written under a permit that nothing can refer to any more. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from headwater.ownership.permit import written


def strays(
    found: Iterable[str],
    fence: int,
    *,
    recorded: AbstractSet[str],
    under_way: AbstractSet[str] = frozenset(),
    decided: AbstractSet[str] = frozenset(),
) -> list[str]:
    """The files in `found` that can be deleted, even if a task is still writing them.

    `fence` is the caller's own. Read `recorded`, `under_way` and `decided` after listing `found`, because a file is
    written before it is recorded. A file is kept if

    - its fence is later: the caller is no longer the owner;
    - it is `recorded`: in a span, an intent, a run, a segment or a version of a base;
    - it has this fence and its label is `under_way`: the owner may be about to record it (files of an earlier owner
      can never be recorded);
    - its label is `decided`, whatever its fence: a commit that adds it may still be made.

    Files that were not written under a permit are ignored.
    """
    gone = []
    for path in found:
        made = written(path)
        if made is None or made.fence > fence or path in recorded or made.label in decided:
            continue
        if made.fence == fence and made.label in under_way:
            continue
        gone.append(path)
    return sorted(gone)
