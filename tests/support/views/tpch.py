"""TPC-H's eight tables: their definitions, a tiny data set made by `tpchgen-cli`, and transactions that change them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.views.changes import Writer, next_number, pair_of
from support.views.material import Key, Model, Row, Table, table

SCALE = 0.002  # 3,000 orders
WEIGHTS = {"lineitem": 10, "orders": 4, "customer": 2, "partsupp": 2}  # of changes, by table

TABLES: tuple[Table, ...] = (
    table("region", "r_regionkey bigint, r_name string, r_comment string", "r_regionkey"),
    table("nation", "n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string", "n_nationkey"),
    table(
        "supplier",
        "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, "
        "s_acctbal decimal(15,2), s_comment string",
        "s_suppkey",
    ),
    table(
        "customer",
        "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, "
        "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
        "c_custkey",
    ),
    table(
        "part",
        "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
        "p_container string, p_retailprice decimal(15,2), p_comment string",
        "p_partkey",
    ),
    table(
        "partsupp",
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
        "ps_partkey, ps_suppkey",
    ),
    table(
        "orders",
        "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, "
        "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
        "o_orderkey",
    ),
    table(
        "lineitem",
        "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
        "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
        "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
        "l_shipmode string, l_comment string",
        "l_orderkey, l_linenumber",
    ),
)


def generated(folder: Path, scale: float = SCALE) -> Mapping[Table, Sequence[Row]]:
    """The rows of all tables, the same each time. The generator's files are written into `folder`."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "parquet", "-s", str(scale), "-o", folder, "--overwrite"], check=True, capture_output=True)
    return {t: _rows(t, folder) for t in TABLES}


def _rows(t: Table, folder: Path) -> Sequence[Row]:
    found = pq.read_table(folder / f"{t.name}.parquet", columns=list(t.names))
    rows = zip(*(found[name].to_pylist() for name in t.names), strict=True)
    # With so few suppliers the generator gives some part the same supplier twice; the first counts.
    return list({t.key_of(row): row for row in reversed(list(rows))}.values())[::-1]


def writer(model: Model, seed: int) -> Writer:
    """Transactions over all eight tables. A new line item goes to an order that is there."""
    single = {t.name: next_number(t.name) for t in TABLES if len(t.key) == 1}
    pairs = {"partsupp": pair_of("partsupp", "part", "supplier"), "lineitem": _next_line}
    return Writer(model, seed, single | pairs, _VARY, WEIGHTS, size=24)


def _next_line(model: Model, random: random.Random) -> Key:
    order = random.choice(list(model.rows["orders"]))[0]
    lines = [line for number, line in model.rows["lineitem"] if number == order]
    return (order, max(lines, default=0) + 1)


def _amount(value: Decimal, random: random.Random) -> Decimal:
    return (value * random.randint(50, 150) / 100).quantize(Decimal("0.01"))


def _day(value: date, random: random.Random) -> date:
    return value + timedelta(days=random.randint(-30, 30))


def _count(value: int, random: random.Random) -> int:
    return max(0, value + random.randint(-20, 20))


_VARY: dict[str, Any] = {
    **dict.fromkeys(["s_acctbal", "c_acctbal", "p_retailprice", "ps_supplycost", "o_totalprice"], _amount),
    **dict.fromkeys(["l_quantity", "l_extendedprice"], _amount),
    **dict.fromkeys(["o_orderdate", "l_shipdate", "l_commitdate", "l_receiptdate"], _day),
    "ps_availqty": _count,
}
