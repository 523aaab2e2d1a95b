"""Window functions, first rows of groups, LIMIT, and rows made from arrays."""

from __future__ import annotations

from support.views.material import table
from support.views.public.building import cases, delete, insert, rekey, together, update

EVENT = table("event", "id int, who string, kind string, at int, value int")
DOC = table("doc", "id int, title string, tags array<string>, sizes array<int>")

EVENTS = {
    EVENT: [
        (1, "ann", "see", 1, 5),
        (2, "ann", "buy", 4, 7),
        (3, "ann", "see", 4, None),
        (4, "bob", "see", 2, 7),
        (5, "bob", "buy", 9, 1),
        (6, None, "see", 3, 4),
        (7, None, "buy", 8, 4),
        (8, "cyd", "see", 5, 9),
    ]
}
HISTORY = [
    together(insert(EVENT, (9, "ann", "buy", 2, 6)), delete(EVENT, 5)),  # in the middle; the last of a group
    together(update(EVENT, (1, "ann", "see", 7, 5)), update(EVENT, (4, "cyd", "see", 2, 7))),  # order and group change
    together(delete(EVENT, 8), insert(EVENT, (10, "dov", "see", 1, 3), (11, None, "see", 1, None))),
    together(rekey(EVENT, 3, (30, "ann", "see", 4, 8)), update(EVENT, (7, None, "buy", 0, 4))),
]

OF_EVENTS = {
    "row number": "SELECT id, who, row_number() OVER (PARTITION BY who ORDER BY at, id) AS place FROM event",
    "rank and dense rank": (
        "SELECT id, who, rank() OVER (PARTITION BY who ORDER BY at) AS r, dense_rank() OVER (PARTITION BY who ORDER "
        "BY at) AS d FROM event"
    ),
    "window over all rows": "SELECT id, row_number() OVER (ORDER BY at, id) AS place, count(*) OVER () AS n FROM event",
    "running total": "SELECT id, who, sum(value) OVER (PARTITION BY who ORDER BY at, id) AS total FROM event",
    "total of the partition": (
        "SELECT id, value, sum(value) OVER (PARTITION BY who) AS total, max(value) OVER (PARTITION BY kind) AS most "
        "FROM event"
    ),
    "lag and lead": (
        "SELECT id, lag(value) OVER w AS before, lead(value, 1, -1) OVER w AS behind FROM event WINDOW w AS "
        "(PARTITION BY who ORDER BY at, id)"
    ),
    "first and last value": (
        "SELECT id, first_value(value) OVER w AS first_v, last_value(value, true) OVER w AS last_v FROM event WINDOW "
        "w AS (PARTITION BY who ORDER BY at, id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    ),
    "sliding frame of rows": (
        "SELECT id, avg(value) OVER (PARTITION BY who ORDER BY at, id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS "
        "mean FROM event"
    ),
    "sliding frame of a range": (
        "SELECT id, count(*) OVER (PARTITION BY who ORDER BY at RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS recent "
        "FROM event"
    ),
    "shares and tiles": (
        "SELECT id, ntile(2) OVER (PARTITION BY kind ORDER BY at, id) AS half, percent_rank() OVER (PARTITION BY kind "
        "ORDER BY at) AS share FROM event"
    ),
    "latest row of each group": (
        "SELECT id, who, kind, at FROM (SELECT id, who, kind, at, row_number() OVER (PARTITION BY who ORDER BY at "
        "DESC, id DESC) AS n FROM event) AS e WHERE n = 1"
    ),
    "two highest of each group": (
        "SELECT kind, id, value FROM (SELECT kind, id, value, row_number() OVER (PARTITION BY kind ORDER BY value "
        "DESC NULLS LAST, id) AS n FROM event) AS e WHERE n <= 2"
    ),
    "highest of each group with ties": (
        "SELECT kind, id, value FROM (SELECT kind, id, value, rank() OVER (PARTITION BY kind ORDER BY value DESC) AS "
        "n FROM event) AS e WHERE n <= 2"
    ),
    "qualify": "SELECT id, who FROM event QUALIFY row_number() OVER (PARTITION BY who ORDER BY value, id) = 1",
    "qualify with a count": "SELECT id, who, kind FROM event QUALIFY count(*) OVER (PARTITION BY who) > 2",
    "window over an aggregate": (
        "SELECT who, n, rank() OVER (ORDER BY n DESC) AS place FROM (SELECT who, count(*) AS n FROM event GROUP BY "
        "who) AS c"
    ),
    "aggregate over a window": (
        "SELECT who, max(gap) AS longest FROM (SELECT who, at - lag(at) OVER (PARTITION BY who ORDER BY at, id) AS "
        "gap FROM event) AS g GROUP BY who"
    ),
    "islands": (
        "SELECT who, island, min(at) AS first_at, count(*) AS n FROM (SELECT who, at, at - row_number() OVER "
        "(PARTITION BY who ORDER BY at, id) AS island FROM event) AS e GROUP BY who, island"
    ),
    "windows of two partitions": (
        "SELECT id, row_number() OVER (PARTITION BY who ORDER BY id) AS a, row_number() OVER (PARTITION BY kind ORDER "
        "BY id) AS b FROM event"
    ),
    "seen and then bought": (
        "SELECT s.who, s.id AS seen, min(b.at) AS bought FROM event s JOIN event b ON s.who = b.who AND s.kind = "
        "'see' AND b.kind = 'buy' AND b.at > s.at GROUP BY s.who, s.id"
    ),
    "limit": "SELECT id, at FROM event ORDER BY at, id LIMIT 3",
    "limit and offset": "SELECT id, value FROM event ORDER BY value DESC NULLS LAST, id LIMIT 3 OFFSET 1",
    "order without limit": "SELECT id, who FROM event ORDER BY who NULLS LAST, id",
    "limit inside": "SELECT who, count(*) AS n FROM (SELECT who FROM event ORDER BY at, id LIMIT 4) AS e GROUP BY who",
    "limit over an aggregate": (
        "SELECT who, sum(value) AS total FROM event GROUP BY who ORDER BY total DESC NULLS LAST, who LIMIT 2"
    ),
    "pairs of a group by position": (
        "SELECT a.id, b.id AS next_id FROM (SELECT id, who, row_number() OVER (PARTITION BY who ORDER BY at, id) AS n "
        "FROM event) AS a JOIN (SELECT id, who, row_number() OVER (PARTITION BY who ORDER BY at, id) AS n FROM event) "
        "AS b ON a.who <=> b.who AND b.n = a.n + 1"
    ),
}

DOCS = {
    DOC: [
        (1, "one", ["a", "b", "a"], [3, 1]),
        (2, "two", [], None),
        (3, "three", None, [2]),
        (4, "four", ["c", None], [5, None, 5]),
    ]
}
EDITS = [
    together(update(DOC, (1, "one", ["b", "d"], [1, 1])), insert(DOC, (5, "five", ["a", "a"], [7]))),
    together(update(DOC, (2, "two", ["c"], [4])), delete(DOC, 4)),
    together(rekey(DOC, 3, (30, "three", ["d", "b"], [])), update(DOC, (5, "five", None, [7, 8]))),
]
OF_DOCS = {
    "explode": "SELECT id, explode(tags) AS tag FROM doc",
    "explode with the empty": "SELECT id, explode_outer(tags) AS tag FROM doc",
    "explode with positions": "SELECT id, posexplode(sizes) AS (place, size) FROM doc",
    "lateral view": "SELECT d.id, t.tag FROM doc d LATERAL VIEW explode(d.tags) t AS tag WHERE t.tag <> 'c'",
    "lateral view outer": "SELECT d.id, s.size FROM doc d LATERAL VIEW OUTER explode(d.sizes) s AS size",
    "two lateral views": (
        "SELECT id, tag, size FROM doc LATERAL VIEW explode(tags) t AS tag LATERAL VIEW explode(sizes) s AS size"
    ),
    "words of a text": (
        "SELECT word, count(*) AS n FROM (SELECT explode(split(title, '')) AS word FROM doc) AS w GROUP BY word"
    ),
    "count of exploded tags": (
        "SELECT tag, count(*) AS n, count(DISTINCT id) AS docs FROM (SELECT id, explode(tags) AS tag FROM doc) AS t "
        "GROUP BY tag"
    ),
    "documents with a common tag": (
        "SELECT DISTINCT a.id, b.id AS other FROM (SELECT id, explode(tags) AS tag FROM doc) AS a JOIN (SELECT id, "
        "explode(tags) AS tag FROM doc) AS b ON a.tag = b.tag AND a.id < b.id"
    ),
    "functions of arrays": (
        "SELECT id, size(tags) AS n, array_contains(tags, 'a') AS has_a, transform(sizes, s -> s * 2) AS doubled, "
        "aggregate(sizes, 0, (t, s) -> t + coalesce(s, 0)) AS total FROM doc"
    ),
    "stack": (
        "SELECT id, side, v FROM (SELECT id, stack(2, 'title', length(title), 'tags', size(tags)) AS (side, v) FROM "
        "doc) AS s"
    ),
}

CASES = [*cases(EVENTS, HISTORY, OF_EVENTS), *cases(DOCS, EDITS, OF_DOCS)]
