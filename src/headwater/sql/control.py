"""Statements that control a running table: ALTER TABLE, PAUSE, RESUME and CANCEL BACKFILL, RESYNC TABLE."""

from __future__ import annotations

from headwater.engine.home import Home
from headwater.errors import DefinitionError
from headwater.meta import relations
from headwater.model import Control, TableState
from headwater.source.connected import upstream_of
from headwater.sql import define
from headwater.sql.outcome import Outcome
from headwater.sql.parse import parse
from headwater.sql.statements import AlterTable, BackfillVerb, ControlBackfill, CreateTable, ResyncTable

_CONTROLS = {
    BackfillVerb.PAUSE: Control.PAUSED,
    BackfillVerb.RESUME: Control.RUN,
    BackfillVerb.CANCEL: Control.CANCELLED,
}


def alter_table(home: Home, statement: AlterTable) -> Outcome:
    """Changes options that take effect while the table runs."""
    relation = define.named_table(home, statement.name)
    with home.meta.write() as c:
        relation = relations.get(c, relation.id)
        replacement = relations.replacement(c, relation.id)
        for each in (relation, *([replacement] if replacement else [])):
            relations.set_options(c, each.id, {**each.options, **statement.options})
    return Outcome(f"table {relation.name} altered")


def control_backfill(home: Home, statement: ControlBackfill) -> Outcome:
    """Pauses, resumes or cancels the reading of a table's history, as soon as the scans in flight end."""
    relation = define.named_table(home, statement.name)
    with home.meta.write() as c:
        target = relations.replacement(c, relation.id) or relations.get(c, relation.id)
        if target.state is TableState.LIVE:
            raise DefinitionError(
                "backfill.none",
                f"{relation.name} is complete: there is no backfill to {statement.verb.lower()}",
                f"RESYNC TABLE {relation.name} reads it again.",
            )
        if target.control is Control.CANCELLED:
            raise DefinitionError(
                "backfill.none",
                f"the backfill of {relation.name} was cancelled",
                f"RESYNC TABLE {relation.name} reads its history.",
            )
        if statement.verb is BackfillVerb.CANCEL and target.replaces:
            relations.remove(c, target.id)
            return Outcome(f"resync of {relation.name} cancelled; it stays as it was")
        if statement.verb is BackfillVerb.CANCEL:
            define.check_without_history(relation.name, target.columns, target.key)
        control = _CONTROLS[statement.verb]
        relations.set_control(c, target.id, control)
    return Outcome(f"backfill of {relation.name} {control or 'resumed'}")


def resync_table(home: Home, statement: ResyncTable) -> Outcome:
    """Defines the table a second time; when the new one is complete it replaces the old one."""
    old = define.named_table(home, statement.name)
    if old.options.get("snapshot") == "false":
        raise DefinitionError(
            "table.no_history",
            f"{old.name} was defined without history: a resync would leave it empty",
            "DROP the table and CREATE it again, with or without snapshot = false.",
        )
    with home.meta.read() as c:
        text = relations.statement(c, old.id)
    (definition,) = parse(text)
    assert isinstance(definition, CreateTable)
    upstream = upstream_of(home.meta, old.table_origin.connection_id)
    checked = define.check_table(upstream, definition)
    with home.meta.write() as c:
        replacement = relations.replacement(c, old.id)
        if replacement is not None and replacement.state is not TableState.FAILED:
            return Outcome(f"table {old.name} is already being resynced")
        if replacement is not None:
            relations.remove(c, replacement.id)
        now = relations.get(c, old.id)
        checked.store(
            c, relations.BESIDE + old.name, old.table_origin.connection_id, now.options, text, replaces=old.id
        )
    return Outcome(
        f"table {old.name} is being read again; its old rows stay readable until then", checked.found.notices
    )
