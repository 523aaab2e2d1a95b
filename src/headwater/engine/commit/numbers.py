"""Numbers of commits in a base's log. They make Delta refuse commits that an earlier owner started.

Every commit that changes a base's rows has a number under the base's one application id. The intents of a relation are
executed in order, so the numbers only grow. Spark skips a commit whose number has been reached; Spark and delta-rs both
refuse a commit if another numbered commit was made after it started. So a server that was suspended in the middle of a
commit, on any machine, does no harm when it wakes up. Each intent has two numbers:

- a cover deletes the rows of rescanned spans under the first, and adds the new ones under the last;
- a fold merges under the first; giving it up uses the last, after which it can never be committed.

Rewrites change no rows and have no number: Delta refuses them by the files that they replace.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.meta.intents import Intent


class Number(NamedTuple):
    """A transaction identifier, in Delta's terms."""

    app_id: str
    version: int


def first(intent: Intent) -> Number:
    return Number(_app_id(intent.relation_id), 2 * intent.id)


def last(intent: Intent) -> Number:
    return Number(_app_id(intent.relation_id), 2 * intent.id + 1)


def earlier(intent: Intent) -> Number:
    """The number that the previous version of Headwater gave to a cover or fold; each had its own application id."""
    return Number(f"headwater-{intent.work.kind}-{intent.relation_id}", intent.id)


def app_ids(relation_id: int) -> tuple[str, ...]:
    """Every application id that can occur in the log of a relation's base."""
    return (_app_id(relation_id), f"headwater-cover-{relation_id}", f"headwater-fold-{relation_id}")


def _app_id(relation_id: int) -> str:
    return f"headwater-{relation_id}"
