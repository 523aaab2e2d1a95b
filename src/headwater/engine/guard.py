"""Work on one table: an error stops that table, or the work is retried; other tables are not affected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headwater.engine.failures import Who, described
from headwater.engine.home import Home
from headwater.errors import FencedError, HeadwaterError, Scope
from headwater.meta import relations
from headwater.model import TableState
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guard:
    """Does work for tables. Thread-safe."""

    home: Home
    leases: Leases

    def attempt(self, job: str, relation_id: int, work: Callable[[], T], otherwise: T) -> T:
        """Does the work unless it is backing off after a failure.

        An error that requires it stops the table; any other is recorded and shown, and the work is retried later. A
        lost lease is raised.
        """

        def guarded() -> T:
            try:
                return work()
            except FencedError:
                raise
            except Exception as e:
                if self._dropped(relation_id):
                    return otherwise
                error = described(e)
                if not error.stops(Scope.TABLE):
                    raise
                self.stop(relation_id, error)
                return otherwise

        return self.home.live.failures.attempt(Who(job, table=relation_id), guarded, otherwise)

    def _dropped(self, relation_id: int) -> bool:
        with self.home.meta.read() as c:
            return relations.get_or_none(c, relation_id) is None

    def stop(self, relation_id: int, error: HeadwaterError) -> None:
        """Stops this table, and only this one, with the error.

        Does nothing if it was dropped meanwhile or has already stopped: the first error counts, because it tells up to
        where the table is intact.
        """
        with self.home.meta.owned(self.leases.of(Name.relation(relation_id))) as c:
            relation = relations.get_or_none(c, relation_id)
            if relation is None or relation.state is TableState.FAILED:
                return
            log.error("table failed name=%s code=%s", relation.name, error.code)
            relations.set_state(c, relation_id, TableState.FAILED, error)
        self.home.live.failures.forget(table=relation_id)
