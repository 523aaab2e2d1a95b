"""Query shapes that views must know, one of each, over two small tables; and random changes of these."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

from support.view_moves import Table, Values, schema_of, settle

A = "id BIGINT; k INT; v DECIMAL(12,2); s STRING; tags ARRAY<STRING>; f DOUBLE; t TIMESTAMP; m MAP<STRING,INT>"
B = "id BIGINT; k INT; n BIGINT; s STRING"

QUERIES = {
    # rows
    "star": "select * from a",
    "project and filter": "select id + 1 x, upper(s) u, m from a where v > 1",
    "inner join": "select a.id, b.n, a.s from a join b on a.k = b.k",
    "inner join by key": "select a.id, a.k, b.n from a join b on a.k = b.id",
    "inner join without equality": "select a.id, b.id bid from a join b on a.k < b.k",
    "cross join": "select a.id, b.id bid from a cross join b where a.id < 3",
    "self join": "select x.id, y.id yid from a x join a y on x.k = y.k and x.id < y.id",
    "three inputs": "select a.id, c.s from a join b on a.k = b.k join a c on c.id = b.n",
    "union all": "select k, s from a union all select k, s from b",
    "values": "select a.id, x from a, (values (1), (2)) t(x) where id > x",
    "explode": "select id, e from a lateral view explode(tags) as e",
    "explode outer": "select id, e from a lateral view outer explode(tags) as e",
    "posexplode": "select id, p, e from a lateral view posexplode(tags) as p, e",
    "explode map": "select id, key, value from a lateral view explode(m) e as key, value",
    "inline": "select id, inline(array(struct(id as x, s as y), struct(cast(k as bigint) as x, 'z' as y))) from a",
    "stack": "select id, stack(2, k, s, 5, 'b') as (x, y) from a",
    "json_tuple": "select id, json_tuple(s, 'a') from a",
    # groups
    "aggregate": "select k, count(*) n, sum(v) sv, avg(v) av, avg(id) ai, sum(id) si, count(s) cs from a group by k",
    "aggregate of booleans": "select s, bool_and(k > 1) ba, bool_or(k > 1) bo, count_if(k > 1) ci from a group by s",
    "aggregate with filter": "select k, sum(v) filter (where id > 3) r, count(*) filter (where s = 'x') c"
    " from a group by k",
    "aggregate over everything": "select count(*) n, sum(v) s from a where id > 2",
    "aggregate of a join": "select b.n, count(*) c, sum(a.v * 2) v from a join b on a.k = b.k group by b.n",
    "having": "select k, 100 / sum(id) x from a group by k having sum(id) <> 0 and count(*) > 1",
    "having a scalar sub-query": "select k, count(*) c from a group by k having count(*) > (select min(n) from b)",
    "distinct": "select distinct k, s from a",
    "union": "select k from a union select k from b",
    "except": "select k from a except select k from b",
    "intersect": "select k from a intersect select k from b",
    "grouping sets": "select k, s, count(*) c from a group by grouping sets ((k), (s), ())",
    "cube": "select k, s, grouping_id() g, sum(v) v from a group by cube(k, s)",
    "rollup": "select k, s, count(*) c from a group by rollup(k, s)",
    "tumbling window": "select window(t, '1 hour').start w, count(*) c from a group by window(t, '1 hour')",
    "hopping window": "select window(t, '1 hour', '30 minutes') w, count(*) c from a group by 1",
    "group by an expression": "select k % 2 odd, k % 2 + 1 more, count(*) c from a group by k % 2",
    # keys
    "left join": "select a.id, b.n, a.s from a left join b on a.k = b.k",
    "left join by key": "select a.id, b.n from a left join b on a.k = b.id",
    "right join": "select a.id, b.n from a right join b on a.k = b.k",
    "full join": "select a.id, b.n, coalesce(a.k, b.k) k from a full join b on a.k = b.k and a.id < b.n",
    "full join of nullable keys": "with p as (select k, count(*) c from a group by k),"
    " q as (select k, count(*) c from b group by k)"
    " select p.k pk, p.c pc, q.k qk, q.c qc from p full join q on p.k = q.k",
    "left join without equality": "select a.id, b.id bid from a left join b on a.k < b.k",
    "exists": "select id from a where exists (select 1 from b where b.k = a.k)",
    "not exists": "select id, s from a where not exists (select 1 from b where b.k = a.k)",
    "in": "select id from a where k in (select n from b)",
    "not in": "select id from a where k not in (select n from b)",
    "exists or in": "select id from a where exists (select 1 from b where b.k = a.k) or id not in (select n from b)",
    "correlated scalar": "select id, (select count(*) from b where b.k = a.k) n from a",
    "correlated comparison": "select id from a where id > (select avg(b.n) from b where b.k = a.k)",
    "lateral": "select id, x.* from a, lateral (select n from b where b.k = a.k order by n, id limit 2) x",
    "except all": "select k from a except all select k from b",
    "intersect all": "select k from a intersect all select k from b",
    "min and max": "select k, min(v) lo, max(s) hi from a group by k having max(v) > 1",
    "sum of doubles": "select k, sum(f) f, avg(f) g, stddev(f) d from a group by k",
    "count distinct": "select k, count(distinct s) c from a group by k",
    "two distincts": "select k, count(distinct s) c, count(distinct v) d, sum(v) v from a group by k",
    "pivot": "select * from (select k, s, v from a) pivot (sum(v) for s in ('x', 'y'))",
    "collect": "select k, array_sort(collect_list(s)) l from a group by k",
    "window": "select id, sum(v) over (partition by k) sv, lag(id) over (partition by k order by v, id) p from a",
    "window of doubles": "select id, sum(f) over (partition by k) sf from a",
    "qualify": "select id, row_number() over (partition by k order by v desc, id) rn from a qualify rn <= 2",
    "nested aggregate": "select c, count(*) n from"
    " (select a.id, count(b.n) c from a left join b on a.k = b.k group by a.id) group by c",
    "cte twice": "with x as (select k, count(*) c from a group by k)"
    " select p.k, p.c, q.k k2 from x p join x q on p.c = q.c and p.k is not null",
    # when reading
    "order by": "select id, s from a order by s, id",
    "order by and limit": "select id, s from a order by v desc, id limit 3",
    "limit and offset": "select id, s from a order by id limit 3 offset 1",
    "top groups": "select k, count(*) c from a group by k order by c desc, k limit 2",
    # full
    "scalar sub-query": "select id from a where v > (select avg(n) from b)",
    "uncorrelated exists": "select id from a where exists (select 1 from b where n > 2)",
    "window over everything": "select id, rank() over (order by v desc) r from a",
    "limit inside": "select k, count(*) c from (select * from a order by id limit 5) group by k",
    "max over everything": "select max(v) m from a",
    "group by a sum of doubles": "select f, count(*) c from (select k, sum(f) f from a group by k) group by f",
    "session window": "select session_window(t, '1 hour').start w, count(*) c from a"
    " group by session_window(t, '1 hour')",
    "group by a map": "select m, count(*) c from a group by m",
    "group by a collation": "select count(*) c, min(id) i from a group by s collate utf8_lcase",
    "order by an interval": "select id from a order by t - timestamp'2024-01-01', id",
    "try_sum": "select k, try_sum(9000000000000000000 + id) x, count(*) c from a group by k",
    "constant first": "select c.x, count(*) n, sum(a.v) v from (values (1), (2)) c(x) join a on a.k = c.x group by c.x",
    "time": "select id, now() > timestamp'2020-01-01' late from a",
    "random": "select id, rand() < 2 r from a",
    "recursive": "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3)"
    " select r.n, a.id from r join a on a.id = r.n",
}


def two_tables(random_source: random.Random, rows: int = 9) -> dict[str, Table]:
    """Tables `a` and `b` with NULLs and duplicates."""
    tables = {"a": Table(schema_of(A, "id")), "b": Table(schema_of(B, "id"))}
    for number in range(rows):
        tables["a"].put(row_of(random_source, "a", number))
        tables["b"].put(row_of(random_source, "b", number))
    settle(tables)
    return tables


def row_of(random_source: random.Random, name: str, number: int) -> Values:
    """A row of table `a` or `b`."""

    def one(*values: Any) -> Any:
        return random_source.choice(values)

    if name == "b":
        return (number, one(None, 1, 2, 3, 5), one(None, 1, 2, 3, 7), one("x", None))
    hour = datetime.datetime(2024, 1, 1, one(0, 1, 2), one(0, 59), tzinfo=datetime.UTC)
    amount = one(None, Decimal("1.50"), Decimal(number), Decimal("-3.25"))
    tags = one(None, [], ["p"], ["p", "q", None])
    pairs = one(None, {}, {"p": 1}, {"p": 2, "q": None})
    return (
        number,
        one(None, 1, 2, 3),
        amount,
        one("x", "y", None),
        tags,
        one(None, 0.1, 1e10, -0.3),
        one(None, hour),
        pairs,
    )


def change(random_source: random.Random, tables: dict[str, Table], *names: str) -> None:
    """New, changed and removed rows in these tables: at least one of each."""
    for name in names:
        table = tables[name]
        acts = ["new", "changed", "removed", *random_source.choices(("new", "changed", "removed"), k=2)]
        random_source.shuffle(acts)
        for act in acts:
            keys = [key[0] for key in table.rows]
            if act == "new":
                table.put(row_of(random_source, name, max([*keys, 0]) + 1))
            elif act == "changed":
                table.put(row_of(random_source, name, random_source.choice(keys)))
            else:
                table.drop(random_source.choice(keys))
