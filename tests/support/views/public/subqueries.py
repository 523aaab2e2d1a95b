"""Sub-queries in every place, and plain expressions: what a filter lets in and out, also around NULL."""

from __future__ import annotations

from support.views.material import table
from support.views.public.building import cases, delete, insert, rekey, together, update

PLAYER = table("player", "id int, team int, score int, name string")
TEAM = table("team", "id int, name string, bar int")

LEAGUE = {
    TEAM: [(1, "reds", 10), (2, "blues", 20), (3, "greens", None), (4, "greys", 5)],
    PLAYER: [
        (1, 1, 12, "ann"),
        (2, 1, 8, "bob"),
        (3, 2, 30, "cyd"),
        (4, 2, None, "dov"),
        (5, None, 15, "eve"),
        (6, 3, 1, "fay"),
    ],
}
SEASON = [
    together(update(PLAYER, (2, 1, 11, "bob")), insert(PLAYER, (7, 4, 40, "gus"))),  # the highest score is another
    together(delete(PLAYER, 3), update(TEAM, (3, "greens", 1))),
    together(update(PLAYER, (5, 4, 3, "eve")), insert(TEAM, (5, "golds", 1)), insert(PLAYER, (8, 5, 2, None))),
    together(rekey(TEAM, 4, (40, "greys", 4)), update(PLAYER, (7, 40, 35, "gus")), delete(TEAM, 2)),
]

OF_LEAGUE = {
    "in": "SELECT id, name FROM player WHERE team IN (SELECT id FROM team WHERE bar >= 10)",
    "not in": "SELECT id, name FROM player WHERE team NOT IN (SELECT id FROM team WHERE bar > 7)",
    "not in a set with null": (
        "SELECT id FROM team WHERE id NOT IN (SELECT team FROM player WHERE score < 15 OR team IS NULL)"
    ),
    "in two columns": (
        "SELECT id FROM player WHERE (team, score) IN (SELECT team, max(score) AS s FROM player GROUP BY team)"
    ),
    "exists": (
        "SELECT id, name FROM team t WHERE EXISTS (SELECT 1 FROM player p WHERE p.team = t.id AND p.score > t.bar)"
    ),
    "not exists": (
        "SELECT id, name FROM team t WHERE NOT EXISTS (SELECT 1 FROM player p WHERE p.team = t.id AND p.score > t.bar)"
    ),
    "exists without correlation": "SELECT id FROM team WHERE EXISTS (SELECT 1 FROM player WHERE score > 32)",
    "exists or a condition": (
        "SELECT t.id, t.name FROM team t WHERE t.bar < 5 OR EXISTS (SELECT 1 FROM player p WHERE p.team = t.id AND "
        "p.score > 20)"
    ),
    "exists in the select list": (
        "SELECT t.id, EXISTS (SELECT 1 FROM player p WHERE p.team = t.id) AS has_players FROM team t"
    ),
    "scalar in the filter": "SELECT id, score FROM player WHERE score > (SELECT avg(score) FROM player)",
    "scalar that may be null": "SELECT id FROM player WHERE score > (SELECT max(bar) FROM team WHERE name = 'golds')",
    "scalar in the select list": "SELECT id, score - (SELECT min(bar) FROM team) AS above FROM player",
    "correlated scalar": (
        "SELECT t.id, t.name, (SELECT max(p.score) FROM player p WHERE p.team = t.id) AS best FROM team t"
    ),
    "correlated count": "SELECT t.id, (SELECT count(*) FROM player p WHERE p.team = t.id) AS players FROM team t",
    "correlated scalar in the filter": (
        "SELECT p.id, p.name FROM player p WHERE p.score >= (SELECT avg(o.score) FROM player o WHERE o.team = p.team)"
    ),
    "sub-query in having": (
        "SELECT team, sum(score) AS total FROM player GROUP BY team HAVING sum(score) > (SELECT max(bar) FROM team)"
    ),
    "sub-query in a sub-query": (
        "SELECT id FROM team WHERE id IN (SELECT team FROM player WHERE score > (SELECT avg(bar) FROM team))"
    ),
    "with": (
        "WITH best AS (SELECT team, max(score) AS score FROM player GROUP BY team), good AS (SELECT team FROM best "
        "WHERE score > 11) SELECT t.name FROM team t JOIN good g ON t.id = g.team"
    ),
    "with used twice": (
        "WITH totals AS (SELECT team, sum(score) AS total FROM player GROUP BY team) SELECT a.team, b.team AS behind "
        "FROM totals a JOIN totals b ON a.total > b.total"
    ),
    "lateral aggregate": (
        "SELECT t.id, s.n, s.best FROM team t, LATERAL (SELECT count(*) AS n, max(score) AS best FROM player p WHERE "
        "p.team = t.id) AS s"
    ),
    "filter of a single table": "SELECT id, name, score FROM player WHERE score BETWEEN 2 AND 14",
    "filter with null": "SELECT id FROM player WHERE NOT (score > 10)",
    "filter by pattern": "SELECT id, upper(name) AS name FROM player WHERE name LIKE '%u%' OR name IS NULL",
    "conditional columns": (
        "SELECT id, CASE WHEN score > 20 THEN 'high' WHEN score IS NULL THEN 'none' ELSE 'low' END AS class, "
        "coalesce(team, -1) AS team, if(score > 10, 1, 0) AS over_ten FROM player"
    ),
    "columns without a key": "SELECT team, name FROM player",
    "constant columns": "SELECT 1 AS one, 'x' AS letter, team FROM player",
    "casts and text": (
        "SELECT id, CAST(score AS DECIMAL(9, 3)) AS exact, concat_ws('-', team, name) AS label FROM player"
    ),
    "structs and maps": (
        "SELECT id, named_struct('team', team, 'score', score) AS pair, map(name, score) AS scores FROM player WHERE "
        "name IS NOT NULL"
    ),
}

CASES = cases(LEAGUE, SEASON, OF_LEAGUE)
