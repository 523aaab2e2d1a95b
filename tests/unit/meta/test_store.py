"""A home of an earlier Headwater: opened by this one it has the same schema as a new one, and keeps its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headwater.meta import connections, progress, relations, tables
from headwater.meta.store import MIGRATIONS, Meta
from headwater.meta.tables import VERSION
from headwater.model import Column, Control, TableState, UpstreamType
from headwater.ownership.names import Name
from support.owned import acquired

# what later versions brought to the schema, newest first
SINCE_1 = (
    "ALTER TABLE relation DROP COLUMN replaced_by",
    *(f"DROP TABLE {table}" for table in ("view", "barrier", "version", "refresh", "plain_view")),
    "ALTER TABLE run DROP COLUMN before_path",
    "ALTER TABLE run DROP COLUMN folded",
    "ALTER TABLE home DROP COLUMN lake",
    "ALTER TABLE segment DROP COLUMN oldest_at",
    "ALTER TABLE run DROP COLUMN base_index",
    *(f"ALTER TABLE {table} DROP COLUMN schema_version" for table in ("relation", "run")),
    "ALTER TABLE relation DROP COLUMN counted_index",
    "DROP INDEX span_progress",
    "ALTER TABLE span DROP COLUMN joined",
    "DROP TABLE retired_segment",
    *(f"ALTER TABLE relation DROP COLUMN {c}" for c in ("rows_estimate", "replaces", "block", "control")),
)


@pytest.fixture(params=["sqlite", "postgres"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty databases."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'old.db'}", f"sqlite:///{tmp_path / 'new.db'}"
        return
    database = request.getfixturevalue("database")
    database.execute(f"CREATE DATABASE {database.name}_new")
    yield database.dsn, database.server.dsn(f"{database.name}_new")
    database.execute(f"DROP DATABASE {database.name}_new WITH (FORCE)")


def shape(meta: Meta) -> dict[str, Any]:
    """Every table's columns and indexes."""
    with meta.read() as c:
        seen = sa.inspect(c)
        return {
            table: (
                {x["name"]: (str(x["type"]), x["nullable"]) for x in seen.get_columns(table)},
                {x["name"]: x["column_names"] for x in seen.get_indexes(table)},
            )
            for table in seen.get_table_names()
        }


def test_a_home_of_version_1_becomes_like_a_new_one_and_keeps_its_tables(urls: tuple[str, str]) -> None:
    assert list(MIGRATIONS) == list(range(1, VERSION))
    old = Meta(urls[0])
    key = Column("id", "INT", UpstreamType("int4", 23, ordered=True))
    with old.write() as c:
        connections.add(c, name="pg", type="postgres-cdc", options={}, secret=None)
        id = relations.add(
            c,
            name="orders",
            connection_id=1,
            upstream_schema="public",
            upstream_table="orders",
            upstream_id=1,
            columns=(key,),
            key=("id",),
            options={},
            statement="",
        )
        relations.set_state(c, id, TableState.LIVE)
        relations.note(c, id, "value.unkept", "column v", 3)
        for name, fence in (("server", 7), ("capture:1", 12)):
            held = {"name": name, "owner": "host:4711", "fence": fence, "expires_at": 1e12}
            c.execute(sa.insert(tables.lease).values(**held))
        for statement in SINCE_1:
            c.exec_driver_sql(statement)
        c.exec_driver_sql("UPDATE home SET version = 1")
    old.close()
    migrated, new = Meta(urls[0]), Meta(urls[1])
    assert shape(migrated) == shape(new)
    with migrated.read() as c:
        kept = relations.get(c, id)
        assert (kept.name, kept.state, kept.control, kept.block, kept.replaces) == ("orders", "live", Control.RUN, 0, 0)
        assert c.execute(sa.text("SELECT version FROM home")).scalar() == VERSION
        assert progress.notices(c, "value.unrepresentable") == {id: 3}
    with migrated.write() as c:
        claims = [acquired(c, Name.server()), acquired(c, Name.connection(1))]
    assert [held.fence for held in claims] == [8, 13], "fences go on, and nobody waits for an owner of that version"
    migrated.close()
    new.close()
