"""A base as delta-rs sees it."""

from __future__ import annotations

from deltalake import DeltaTable

from headwater.storage import Storage


def delta_table(storage: Storage, base_path: str, version: int | None = None) -> DeltaTable:
    """The Delta table of a base, at its newest version or at a given one."""
    return DeltaTable(storage.address(base_path), version=version, storage_options=storage.options or None)
