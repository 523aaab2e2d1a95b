"""The first commit of a base says what Spark and delta-rs must know of it, and nothing that nobody needs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.decode.values import arrow_schema
from headwater.errors import DataError
from headwater.model import Column, DataFile, RelationInfo, TableOrigin, TableState, UpstreamType
from headwater.relation import base
from headwater.storage import LocalStorage

PLAIN = ("BOOLEAN", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38,9)", "STRING", "BINARY", "DATE")
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")
NESTED = ("ARRAY<INT>", "ARRAY<ARRAY<DECIMAL(5,2)>>", "ARRAY<TIMESTAMP_NTZ>")


def relation(*types: str, **options: str) -> RelationInfo:
    columns = tuple(Column(f"c {i}`", t, UpstreamType("x", 1)) for i, t in enumerate(types))
    return RelationInfo(
        1, "t", TableOrigin(1, "s", "t", 1), columns, ("c 0`",), options, TableState.LIVE, None, "warehouse/1", -1
    )


def created(tmp_path: Path, made: RelationInfo) -> DeltaTable:
    storage = LocalStorage(tmp_path)
    assert base.create(storage, made) == 0
    assert base.create(storage, replace(made, base_version=0)) == 0, "an existing one is left as it is"
    return DeltaTable(storage.address(made.base_path))


def test_every_type_is_what_the_relations_columns_are(tmp_path: Path) -> None:
    made = relation(*PLAIN, *TIMES, *NESTED)
    table = created(tmp_path, made)
    assert pa.schema(table.schema().to_arrow()) == arrow_schema(made.columns)


def protocol(table: DeltaTable) -> tuple[Any, ...]:
    p = table.protocol()
    return (
        p.min_reader_version,
        p.min_writer_version,
        *(sorted(f or ()) for f in (p.reader_features, p.writer_features)),
    )


@pytest.mark.parametrize(
    ("types", "vectors", "features"),
    [
        (PLAIN, "true", ["deletionVectors"]),
        (PLAIN, "false", []),
        (TIMES, "true", ["deletionVectors", "timestampNtz"]),
        (("INT", "ARRAY<TIMESTAMP_NTZ>"), "false", ["timestampNtz"]),
    ],
)
def test_only_the_features_that_are_used_are_asked_for(
    tmp_path: Path, types: tuple[str, ...], vectors: str, features: list[str]
) -> None:
    table = created(tmp_path, relation(*types, deletion_vectors=vectors))
    if not features:
        assert protocol(table)[:2] == (1, 2)
    else:
        assert protocol(table) == (3, 7, features, sorted([*features, "appendOnly", "invariants"]))
    assert table.metadata().configuration["delta.enableDeletionVectors"] == vectors


def test_a_small_version_is_known_by_its_files(tmp_path: Path) -> None:
    storage, made = LocalStorage(tmp_path), relation("INT")
    base.create(storage, made)
    assert base.few_files(storage, made.base_path, 0) == base.Few((), 0)
    stats = json.dumps({"numRecords": 1})
    for i in range(1, base.FEW_FILES + 2):
        path = tmp_path / made.base_path / f"{i}.parquet"
        path.write_bytes(b"x")
        assert base.add_files(storage, made.base_path, [DataFile(path.name, 1, 1, stats)], "a", i) == i
    few = base.few_files(storage, made.base_path, base.FEW_FILES)
    assert few is not None and few.bytes == base.FEW_FILES
    assert sorted(few.paths) == [f"{i}.parquet" for i in range(1, base.FEW_FILES + 1)]
    assert base.few_files(storage, made.base_path, base.FEW_FILES + 1) is None
    (tmp_path / made.base_path / "1.parquet").unlink()
    with pytest.raises(DataError) as e:
        base.few_files(storage, made.base_path, 2)
    assert e.value.code == "data.base_damaged"


def test_the_files_of_a_home_are_not_taken_for_those_of_another_that_was_made_in_its_place(tmp_path: Path) -> None:
    made, stats = relation("INT"), json.dumps({"numRecords": 1})
    for name in ("old.parquet", "new.parquet"):
        storage = LocalStorage(tmp_path)  # as each opening of a home has its own
        base.create(storage, made)
        (tmp_path / made.base_path / name).write_bytes(b"x")
        base.add_files(storage, made.base_path, [DataFile(name, 1, 1, stats)], "a", 1)
        assert base.few_files(storage, made.base_path, 1) == base.Few((name,), 1)
        shutil.rmtree(tmp_path / made.base_path)


@pytest.mark.parametrize("left", ["nothing", "a half", "zeros"])
def test_what_an_interrupted_creation_left_is_replaced(tmp_path: Path, left: str) -> None:
    storage, made = LocalStorage(tmp_path), relation("INT")
    base.create(storage, made)
    entry = tmp_path / made.base_path / "_delta_log" / f"{0:020d}.json"
    whole = entry.read_bytes()
    entry.write_bytes({"nothing": b"", "a half": whole[: len(whole) // 2], "zeros": bytes(len(whole))}[left])
    assert base.create(storage, made) == 0
    assert pa.schema(DeltaTable(storage.address(made.base_path)).schema().to_arrow()) == arrow_schema(made.columns)


def test_a_base_that_another_owner_has_made_meanwhile_is_not_touched(tmp_path: Path) -> None:
    """By a server that was suspended before it made the base, and wakes up when the next one has filled it."""
    storage, made, stats = LocalStorage(tmp_path), relation("INT"), json.dumps({"numRecords": 1})
    base.create(storage, made)
    (tmp_path / made.base_path / "filled.parquet").write_bytes(b"x")
    base.add_files(storage, made.base_path, [DataFile("filled.parquet", 1, 1, stats)], "a", 1)
    entry = tmp_path / made.base_path / "_delta_log" / f"{0:020d}.json"
    first = entry.read_bytes()
    assert base.create(storage, made) == 1 and entry.read_bytes() == first
    assert base.files(storage, made.base_path, 1) == {"filled.parquet"}
    assert storage.exists(f"{made.base_path}/filled.parquet")
