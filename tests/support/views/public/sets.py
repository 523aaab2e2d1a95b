"""Set operations with and without ALL, over rows that are equal, NULL, and there several times."""

from __future__ import annotations

from support.views.material import table
from support.views.public.building import cases, delete, insert, rekey, together, update

LEFT = table("l", "id int, x int, y string")
RIGHT = table("r", "id int, x int, y string")

BOTH = {
    LEFT: [
        (1, 1, "a"),
        (2, 1, "a"),
        (3, 2, "b"),
        (4, None, "c"),
        (5, None, None),
        (6, 3, "d"),
        (7, 3, "d"),
        (8, 3, "d"),
    ],
    RIGHT: [(1, 1, "a"), (2, None, "c"), (3, 4, "e"), (4, 3, "d"), (5, 3, "d")],
}
STEPS = [
    together(insert(LEFT, (9, 4, "e"), (10, 4, "e")), delete(RIGHT, 1)),  # appears on one side, goes on the other
    together(update(RIGHT, (2, None, None)), update(LEFT, (3, 3, "d"))),
    together(insert(RIGHT, (6, 4, "e"), (7, 2, "b"), (8, None, None)), delete(LEFT, 1)),
    together(rekey(LEFT, 6, (60, 5, "f")), insert(RIGHT, (9, 5, "f"))),
]

OF_BOTH = {
    "union all": "SELECT x, y FROM l UNION ALL SELECT x, y FROM r",
    "union": "SELECT x, y FROM l UNION SELECT x, y FROM r",
    "union of different columns": (
        "SELECT id, x AS v, 'l' AS side FROM l UNION ALL SELECT id, length(y) AS v, 'r' AS side FROM r"
    ),
    "union of a table with itself": "SELECT x FROM l UNION ALL SELECT id AS x FROM l",
    "union of three": "SELECT y FROM l UNION SELECT y FROM r UNION SELECT CAST(x AS STRING) AS y FROM l",
    "intersect": "SELECT x, y FROM l INTERSECT SELECT x, y FROM r",
    "intersect all": "SELECT x, y FROM l INTERSECT ALL SELECT x, y FROM r",
    "except": "SELECT x, y FROM l EXCEPT SELECT x, y FROM r",
    "except all": "SELECT x, y FROM l EXCEPT ALL SELECT x, y FROM r",
    "except from the other side": "SELECT x FROM r EXCEPT SELECT x FROM l",
    "set operations in each other": (
        "(SELECT x FROM l UNION SELECT x FROM r) EXCEPT (SELECT x FROM l INTERSECT SELECT x FROM r)"
    ),
    "aggregate over a union": (
        "SELECT y, count(*) AS n, sum(x) AS total FROM (SELECT x, y FROM l UNION ALL SELECT x, y FROM r) AS u GROUP "
        "BY y"
    ),
    "join over a union": "SELECT u.y, r.id FROM (SELECT x, y FROM l UNION SELECT x, y FROM r) AS u JOIN r ON u.x = r.x",
    "distinct over a join": "SELECT DISTINCT l.y AS ly, r.y AS ry FROM l JOIN r ON l.x = r.x",
    "null-safe join of both": "SELECT l.id AS lid, r.id AS rid FROM l FULL JOIN r ON l.x <=> r.x AND l.y <=> r.y",
    "values beside a table": "SELECT x, y FROM l UNION ALL SELECT x, y FROM VALUES (9, 'z'), (NULL, NULL) AS v(x, y)",
}

CASES = cases(BOTH, STEPS, OF_BOTH)
