"""Views over the auction house, after the questions of the Nexmark benchmark; each has one answer."""

from __future__ import annotations

QUERIES: dict[str, str] = {}

QUERIES["bids_in_another_currency"] = """
SELECT id, auction, bidder, CAST(price * 0.908 AS DECIMAL(20, 3)) AS price_eur, bid_at
FROM bid
"""

QUERIES["bids_on_chosen_auctions"] = """
SELECT id, auction, price
FROM bid
WHERE auction % 7 = 0 OR auction IN (1, 2, 3)
"""

QUERIES["sellers_nearby"] = """
SELECT p.name, p.city, p.state, a.id AS auction_id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
"""

QUERIES["winning_bids"] = """
SELECT auction_id, item, seller, category, bid_id, bidder, price, bid_at
FROM (
  SELECT a.id AS auction_id, a.item, a.seller, a.category, b.id AS bid_id, b.bidder, b.price, b.bid_at,
         row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.bid_at, b.id) AS place
  FROM auction a JOIN bid b ON b.auction = a.id AND b.bid_at BETWEEN a.opened AND a.expires) AS ranked
WHERE place = 1
"""

QUERIES["average_final_price_per_category"] = """
SELECT category, avg(final) AS avg_final, count(*) AS auctions
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON b.auction = a.id
  WHERE b.bid_at >= a.opened AND b.bid_at <= a.expires
  GROUP BY a.id, a.category) AS finals
GROUP BY category
"""

QUERIES["hot_items"] = """
WITH counts AS (
  SELECT auction, window(bid_at, '60 minutes', '15 minutes') AS period, count(*) AS bids
  FROM bid
  GROUP BY auction, window(bid_at, '60 minutes', '15 minutes')),
most AS (SELECT period, max(bids) AS most_bids FROM counts GROUP BY period)
SELECT c.auction, c.period.start AS period_start, c.bids
FROM counts c JOIN most m ON c.period = m.period AND c.bids = m.most_bids
"""

QUERIES["average_of_a_sellers_last_prices"] = """
SELECT seller, auction_id, closed, avg(final) OVER (
         PARTITION BY seller ORDER BY closed, auction_id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS avg_price
FROM (
  SELECT a.seller, a.id AS auction_id, a.expires AS closed, max(b.price) AS final
  FROM auction a JOIN bid b ON b.auction = a.id AND b.bid_at BETWEEN a.opened AND a.expires
  GROUP BY a.seller, a.id, a.expires) AS finals
"""

QUERIES["highest_bids_of_each_period"] = """
SELECT b.id, b.auction, b.price, b.bidder, m.period.end AS period_end
FROM bid b JOIN (
  SELECT window(bid_at, '30 minutes') AS period, max(price) AS highest
  FROM bid
  GROUP BY window(bid_at, '30 minutes')) AS m
  ON b.price = m.highest AND b.bid_at >= m.period.start AND b.bid_at < m.period.end
"""

QUERIES["new_persons_who_sell_at_once"] = """
SELECT p.id, p.name, p.period.start AS period_start, a.auctions
FROM (SELECT id, name, window(joined, '4 hours') AS period FROM person) AS p
JOIN (
  SELECT seller, window(opened, '4 hours') AS period, count(*) AS auctions
  FROM auction
  GROUP BY seller, window(opened, '4 hours')) AS a
  ON p.id = a.seller AND p.period = a.period
"""

QUERIES["bids_of_each_bidder_per_hour"] = """
SELECT bidder, period.start AS hour_start, bids, spent
FROM (
  SELECT bidder, window(bid_at, '1 hour') AS period, count(*) AS bids, sum(price) AS spent
  FROM bid
  GROUP BY bidder, window(bid_at, '1 hour')) AS hourly
"""

QUERIES["sessions_of_bidders"] = """
SELECT bidder, session, min(bid_at) AS first_bid, max(bid_at) AS last_bid, count(*) AS bids
FROM (
  SELECT bidder, bid_at, sum(starts) OVER (PARTITION BY bidder ORDER BY bid_at, id) AS session
  FROM (
    SELECT id, bidder, bid_at,
           CASE WHEN bid_at <= lag(bid_at) OVER (PARTITION BY bidder ORDER BY bid_at, id) + INTERVAL 20 MINUTES
                THEN 0 ELSE 1 END AS starts
    FROM bid) AS marked) AS numbered
GROUP BY bidder, session
"""

QUERIES["bids_with_names_of_categories"] = """
SELECT b.id, b.price, a.item, coalesce(c.title, 'other') AS title
FROM bid b JOIN auction a ON b.auction = a.id
LEFT JOIN VALUES (10, 'coins'), (11, 'stamps'), (12, 'maps') AS c(category, title) ON a.category = c.category
"""

QUERIES["bids_by_time_of_day"] = """
SELECT id, auction, bidder, CAST(0.908 * price AS DECIMAL(20, 3)) AS price,
       CASE WHEN hour(bid_at) BETWEEN 8 AND 11 THEN 'morning'
            WHEN hour(bid_at) BETWEEN 12 AND 17 THEN 'afternoon' ELSE 'evening' END AS time_of_day,
       length(url) - length(replace(url, 'c', '')) AS c_count
FROM bid
WHERE price BETWEEN 1000 AND 3000
"""

QUERIES["bidders_per_day"] = """
SELECT CAST(bid_at AS DATE) AS day, count(*) AS bids, count(*) FILTER (WHERE price < 1000) AS cheap_bids,
       count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (WHERE price >= 1000) AS rich_bidders,
       count(DISTINCT auction) AS auctions
FROM bid
GROUP BY CAST(bid_at AS DATE)
"""

QUERIES["channels_per_day"] = """
SELECT channel, CAST(bid_at AS DATE) AS day, max(date_format(bid_at, 'HH:mm')) AS last_minute, count(*) AS bids,
       count(DISTINCT bidder) AS bidders, min(price) AS lowest, max(price) AS highest
FROM bid
GROUP BY channel, CAST(bid_at AS DATE)
"""

QUERIES["last_bid_of_each_bidder"] = """
SELECT id, auction, bidder, price, bid_at
FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY bid_at DESC, id DESC) = 1
"""

QUERIES["ten_highest_bids_of_each_auction"] = """
SELECT auction, place, id, bidder, price
FROM (
  SELECT auction, id, bidder, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC, id) AS place
  FROM bid) AS ranked
WHERE place <= 10
"""

QUERIES["bids_with_auction_and_person"] = """
SELECT b.id, b.price, a.item, a.category, s.name AS seller_name, p.name AS bidder_name, p.state
FROM bid b
LEFT JOIN auction a ON b.auction = a.id
LEFT JOIN person s ON a.seller = s.id
LEFT JOIN person p ON b.bidder = p.id
"""

QUERIES["bids_with_channel_number"] = """
SELECT id, auction, price, channel,
       CASE channel WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'baidu' THEN '2'
            ELSE regexp_extract(url, 'channel_id=([0-9]+)', 1) END AS channel_number
FROM bid
WHERE channel IS NOT NULL
"""

QUERIES["bids_with_folders_of_their_url"] = """
SELECT id, split_part(url, '/', 4) AS folder1, split_part(url, '/', 5) AS folder2, split_part(url, '/', 6) AS page
FROM bid
"""

QUERIES["auctions_without_a_good_bid"] = """
SELECT a.id, a.item, a.reserve
FROM auction a
WHERE a.reserve IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id AND b.price >= a.reserve)
"""

QUERIES["sellers_and_bidders_by_state"] = """
SELECT state, sum(sells) AS sellers, sum(bids) AS bidders
FROM (
  SELECT p.state, CAST(p.id IN (SELECT seller FROM auction) AS INT) AS sells,
         CAST(EXISTS (SELECT 1 FROM bid b WHERE b.bidder = p.id AND b.price > 2000) AS INT) AS bids
  FROM person p) AS roles
GROUP BY state
"""
