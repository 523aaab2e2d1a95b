"""An auction house: persons open auctions, others bid. First rows and transactions come from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from support.views.changes import Writer, next_number
from support.views.material import Model, Row, Table, table

BEGIN = datetime(2024, 3, 1, 8, 0)
PERSONS, AUCTIONS, BIDS = 30, 50, 800
CITIES = (("Portland", "OR"), ("Boise", "ID"), ("Los Angeles", "CA"), ("Bend", "OR"), ("Phoenix", "AZ"), ("Kent", "WA"))
CHANNELS = ("apple", "google", "baidu", "channel-17", "channel-204", None)

PERSON = table("person", "id bigint, name string, email string, city string, state string, joined timestamp_ntz")
AUCTION = table(
    "auction",
    "id bigint, item string, seller bigint, category int, initial_bid bigint, reserve bigint, opened timestamp_ntz, "
    "expires timestamp_ntz",
)
BID = table(
    "bid", "id bigint, auction bigint, bidder bigint, price bigint, channel string, url string, bid_at timestamp_ntz"
)
TABLES: tuple[Table, ...] = (PERSON, AUCTION, BID)


def generated(seed: int) -> Mapping[Table, Sequence[Row]]:
    """The first rows: two days of auctions. A few bids name an auction or a person that is not there."""
    r = random.Random(seed)
    persons = [_person(r, number) for number in range(1, PERSONS + 1)]
    auctions = [_auction(r, number) for number in range(1, AUCTIONS + 1)]
    return {PERSON: persons, AUCTION: auctions, BID: [_bid(r, number) for number in range(1, BIDS + 1)]}


def writer(model: Model, seed: int) -> Writer:
    """Transactions over all three tables: later rows, corrected prices, bids that are withdrawn."""
    return Writer(model, seed, {t.name: next_number(t.name) for t in TABLES}, _VARY)


def _person(r: random.Random, number: int) -> Row:
    city, state = r.choice(CITIES)
    name = f"{r.choice(['Ada', 'Ben', 'Cleo', 'Dan', 'Eva'])} {r.choice(['Abel', 'Brook', 'Chan', 'Diaz'])}"
    return (number, name, r.choice([f"p{number}@example.org", None]), city, state, _moment(r))


def _auction(r: random.Random, number: int) -> Row:
    opened = _moment(r)
    first = r.randint(1, 50) * 10
    closes = opened + timedelta(hours=r.randint(1, 20))
    reserve = r.choice([None, first + 100, first + 2000, 6000])
    return (number, f"item {number % 17}", r.randint(1, PERSONS), r.randint(10, 14), first, reserve, opened, closes)


def _bid(r: random.Random, number: int) -> Row:
    # Some auctions and some bidders are far more popular than others.
    auction = min(r.randint(1, AUCTIONS + 2), r.randint(1, AUCTIONS + 2))
    bidder = min(r.randint(1, PERSONS + 1), r.randint(1, PERSONS + 1))
    url = f"https://www.example.com/{r.choice('abc')}/{r.choice('xyz')}/item.htm?query=1&channel_id={r.randint(1, 99)}"
    return (number, auction, bidder, r.randint(1, 400) * 10, r.choice(CHANNELS), url, _moment(r))


def _moment(r: random.Random) -> datetime:
    """Within two days; most of it in the mornings, so that windows have several rows."""
    return BEGIN + timedelta(days=r.randint(0, 1), seconds=min(r.randrange(36_000), r.randrange(36_000)))


def _price(value: int, r: random.Random) -> int:
    return max(10, value + r.randint(-20, 20) * 10)


def _later(value: datetime, r: random.Random) -> datetime:
    return value + timedelta(seconds=r.randrange(7200))


_VARY: dict[str, Any] = {
    **dict.fromkeys(["price", "initial_bid", "reserve"], _price),
    **dict.fromkeys(["bid_at", "opened", "expires", "joined"], _later),
}
