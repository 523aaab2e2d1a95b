"""Joins of every kind: rows that match, stop matching, match twice, and never match because a column is NULL."""

from __future__ import annotations

from support.views.material import table
from support.views.public.building import cases, delete, insert, rekey, together, update

DEPT = table("dept", "id int, name string, head int")
EMP = table("emp", "id int, dept int, name string, pay int, boss int")
EDGE = table("edge", "src int, dst int, weight int", "src, dst")

STAFF = {
    DEPT: [(1, "sales", 11), (2, "tools", 12), (3, "empty", None), (4, "legal", 99)],
    EMP: [
        (11, 1, "ann", 50, None),
        (12, 2, "bob", 70, 11),
        (13, 2, "cyd", 70, 12),
        (14, None, "dov", 40, 12),
        (15, 7, "eve", None, 11),
        (16, 1, "ann", 30, 11),
    ],
}
MOVES = [
    insert(EMP, (17, 3, "fay", 20, 12), (18, None, "gus", None, None)),  # the empty department gets somebody
    together(update(EMP, (14, 1, "dov", 45, 11)), delete(EMP, 13)),  # NULL to a match; a match goes
    together(insert(DEPT, (7, "new", 15)), update(DEPT, (1, "trade", 16)), insert(EMP, (19, 7, "hal", 90, 15))),
    together(delete(DEPT, 2), delete(EMP, 12), insert(EMP, (20, 4, "ida", 60, 19))),  # both sides of one pair at once
    together(rekey(DEPT, 3, (30, "empty", 17)), rekey(EMP, 16, (160, 30, "ann", 30, 11))),
]

OF_STAFF = {
    "inner join": "SELECT e.id, e.name, d.name AS dept FROM emp e JOIN dept d ON e.dept = d.id",
    "inner join without the keys": "SELECT e.name, d.name AS dept FROM emp e JOIN dept d ON e.dept = d.id",
    "inner join with using": (
        "SELECT id, e.name AS emp, h.name AS heads FROM emp e JOIN (SELECT head AS id, name FROM dept) h USING (id)"
    ),
    "natural join": "SELECT id, pay, title FROM emp NATURAL JOIN (SELECT head AS id, name AS title FROM dept) AS d",
    "left join": "SELECT e.id, e.name, d.name AS dept FROM emp e LEFT JOIN dept d ON e.dept = d.id",
    "left join from the other side": "SELECT d.id, d.name, e.id AS emp FROM dept d LEFT JOIN emp e ON e.dept = d.id",
    "right join": "SELECT e.name, d.id, d.name AS dept FROM emp e RIGHT JOIN dept d ON e.dept = d.id",
    "full join": "SELECT e.id, d.id AS dept, d.name FROM emp e FULL JOIN dept d ON e.dept = d.id",
    "full join with a condition on one side": (
        "SELECT e.id, d.id AS dept FROM emp e FULL JOIN dept d ON e.dept = d.id AND e.pay > 40"
    ),
    "left join with a condition on the padded side": (
        "SELECT e.id, d.name FROM emp e LEFT JOIN dept d ON e.dept = d.id AND d.name <> 'tools'"
    ),
    "left join with a condition on the kept side": (
        "SELECT e.id, d.name FROM emp e LEFT JOIN dept d ON e.dept = d.id AND e.pay >= 50"
    ),
    "left join that keeps the unmatched": (
        "SELECT e.id, e.name FROM emp e LEFT JOIN dept d ON e.dept = d.id WHERE d.id IS NULL"
    ),
    "left join on equal or null": "SELECT e.id, b.id AS boss FROM emp e LEFT JOIN emp b ON e.boss <=> b.dept",
    "join on equal or null": "SELECT e.id, d.id AS dept FROM emp e JOIN dept d ON e.boss <=> d.head",
    "cross join": "SELECT e.id, d.id AS dept FROM emp e CROSS JOIN dept d WHERE e.pay > 45",
    "join by an inequality": "SELECT e.id, o.id AS richer FROM emp e JOIN emp o ON e.pay < o.pay",
    "left join by an inequality": "SELECT d.id, e.id AS emp FROM dept d LEFT JOIN emp e ON e.pay > d.id * 20",
    "join by a range and an equality": (
        "SELECT e.id, o.id AS other FROM emp e JOIN emp o ON e.dept = o.dept AND o.pay BETWEEN e.pay - 10 AND e.pay + "
        "10"
    ),
    "join by an expression": "SELECT e.id, d.name FROM emp e JOIN dept d ON e.dept + 10 = d.head",
    "join by either of two columns": (
        "SELECT e.id, d.id AS dept FROM emp e JOIN dept d ON e.dept = d.id OR e.id = d.head"
    ),
    "self join": "SELECT e.id, b.name AS boss FROM emp e JOIN emp b ON e.boss = b.id",
    "self join twice": (
        "SELECT e.id, b.name AS boss, c.name AS top FROM emp e LEFT JOIN emp b ON e.boss = b.id LEFT JOIN emp c ON "
        "b.boss = c.id"
    ),
    "self join of colleagues": (
        "SELECT e.name, o.name AS other FROM emp e JOIN emp o ON e.dept = o.dept AND e.id < o.id"
    ),
    "three tables in a row": (
        "SELECT e.id, d.name, h.name AS head FROM emp e JOIN dept d ON e.dept = d.id JOIN emp h ON d.head = h.id"
    ),
    "left joins in a row": (
        "SELECT e.id, d.name, h.name AS head FROM emp e LEFT JOIN dept d ON e.dept = d.id LEFT JOIN emp h ON d.head = "
        "h.id"
    ),
    "inner join over a left join": (
        "SELECT e.id, d.name, h.pay FROM (emp e LEFT JOIN dept d ON e.dept = d.id) JOIN emp h ON coalesce(d.head, 11) "
        "= h.id"
    ),
    "full joins in a row": (
        "SELECT e.id, d.id AS dept, h.id AS head FROM emp e FULL JOIN dept d ON e.dept = d.id FULL JOIN emp h ON "
        "d.head = h.id"
    ),
    "semi join": "SELECT d.id, d.name FROM dept d LEFT SEMI JOIN emp e ON e.dept = d.id",
    "anti join": "SELECT d.id, d.name FROM dept d LEFT ANTI JOIN emp e ON e.dept = d.id",
    "anti join with a condition": "SELECT e.id FROM emp e LEFT ANTI JOIN emp o ON e.dept = o.dept AND o.pay > e.pay",
    "semi join by an inequality": "SELECT e.id, e.name FROM emp e LEFT SEMI JOIN dept d ON e.pay > d.head * 3",
    "join with aggregates of the other side": (
        "SELECT d.id, d.name, s.people, s.pays FROM dept d JOIN (SELECT dept, count(*) AS people, sum(pay) AS pays "
        "FROM emp GROUP BY dept) s ON s.dept = d.id"
    ),
    "left join with aggregates of the other side": (
        "SELECT d.id, coalesce(s.people, 0) AS people FROM dept d LEFT JOIN (SELECT dept, count(*) AS people FROM emp "
        "GROUP BY dept) s ON s.dept = d.id"
    ),
    "aggregate over a left join": (
        "SELECT d.name, count(e.id) AS people, sum(e.pay) AS pays FROM dept d LEFT JOIN emp e ON e.dept = d.id GROUP "
        "BY d.name"
    ),
    "aggregate over a full join": (
        "SELECT d.name, count(*) AS n, count(e.id) AS people FROM emp e FULL JOIN dept d ON e.dept = d.id GROUP BY "
        "d.name"
    ),
    "lateral join": (
        "SELECT d.id, top.name, top.pay FROM dept d, LATERAL (SELECT e.name, e.pay FROM emp e WHERE e.dept = d.id "
        "ORDER BY e.pay DESC, e.id LIMIT 1) AS top"
    ),
    "left lateral join": (
        "SELECT d.id, s.pays FROM dept d LEFT JOIN LATERAL (SELECT sum(e.pay) AS pays FROM emp e WHERE e.dept = d.id "
        "AND e.pay > d.id * 10) AS s"
    ),
}

EDGES = {EDGE: [(1, 2, 5), (2, 3, 5), (3, 1, 1), (3, 4, 2), (4, 4, 9)]}
REWIRED = [
    insert(EDGE, (4, 1, 3), (2, 4, 1)),
    together(delete(EDGE, (2, 3)), insert(EDGE, (3, 2, 5))),
    together(rekey(EDGE, (1, 2), (1, 3, 5)), update(EDGE, (4, 4, 8))),
]
OF_EDGES = {
    "two hops": (
        "SELECT a.src, a.dst AS via, b.dst, a.weight + b.weight AS weight FROM edge a JOIN edge b ON a.dst = b.src"
    ),
    "triangles": (
        "SELECT a.src AS x, b.src AS y, c.src AS z FROM edge a JOIN edge b ON a.dst = b.src JOIN edge c ON b.dst = "
        "c.src AND c.dst = a.src"
    ),
    "shortest of two ways": (
        "SELECT src, dst, min(weight) AS weight FROM (SELECT src, dst, weight FROM edge UNION ALL SELECT a.src, "
        "b.dst, a.weight + b.weight AS weight FROM edge a JOIN edge b ON a.dst = b.src) AS ways GROUP BY src, dst"
    ),
    "ways of up to three edges": (
        "WITH RECURSIVE way(src, dst, edges) AS (SELECT src, dst, 1 AS edges FROM edge UNION ALL "
        "SELECT w.src, e.dst, w.edges + 1 AS edges FROM way w JOIN edge e ON w.dst = e.src WHERE w.edges < 3) "
        "SELECT src, dst, min(edges) AS edges FROM way GROUP BY src, dst"
    ),
    "edges without a way back": (
        "SELECT src, dst FROM edge e WHERE NOT EXISTS (SELECT 1 FROM edge b WHERE b.src = e.dst AND b.dst = e.src)"
    ),
}

CASES = [*cases(STAFF, MOVES, OF_STAFF), *cases(EDGES, REWIRED, OF_EDGES)]
