"""Which files nobody needs any more. Decisions only; who calls this removes them."""

from __future__ import annotations

from collections.abc import Iterable


def orphans(found: Iterable[str], known: Iterable[str], protected: Iterable[str] = ()) -> list[str]:
    """The files that were found but that neither meta nor a running job knows.

    Call it under the owner's lease, with `known` read after `found` was listed: a file is written before it is known.
    """
    return sorted(set(found) - set(known) - set(protected))
