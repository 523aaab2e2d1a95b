"""Work on one table: what goes wrong with it stops that table, or is tried again, and concerns nobody else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headwater.engine.failures import Who, described
from headwater.engine.home import Home
from headwater.errors import FencedError, HeadwaterError, Scope
from headwater.meta import relations
from headwater.meta.lease import Lease
from headwater.model import TableState

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guard:
    """Does work for tables, one at a time or in any number of threads."""

    home: Home
    held: Lease

    def attempt(self, job: str, relation_id: int, work: Callable[[], T], otherwise: T) -> T:
        """Does the work unless it rests after a failure.

        An error that says so stops the table; any other is kept, shown, and the work is tried again later. A lost
        lease is raised.
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
        """Stops the table with the error, and only it.

        One that was dropped meanwhile is left alone, and so is one that has stopped already: the first error counts,
        and with it stands how far the table is whole.
        """
        with self.home.meta.owned(self.held) as c:
            relation = relations.get_or_none(c, relation_id)
            if relation is None or relation.state is TableState.FAILED:
                return
            log.error("table failed name=%s code=%s", relation.name, error.code)
            relations.set_state(c, relation_id, TableState.FAILED, error)
        self.home.live.failures.forget(table=relation_id)
