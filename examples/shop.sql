-- A shop's tables, kept fresh in the lake:  headwater run examples/shop.sql
-- The file can be run repeatedly: a definition that already exists is a no-op.

CREATE CONNECTION shop WITH (
    type = 'postgres-cdc',
    hostname = 'localhost',
    port = '5432',
    username = 'headwater',
    password = 'env:SHOP_PASSWORD',
    database.name = 'shop',
);

-- columns, types and key as declared; a bare decimal takes the upstream's precision and scale
CREATE TABLE orders (
    order_id int PRIMARY KEY,
    order_date bigint,
    customer_name string,
    price decimal,
    product_id int,
    order_status smallint
) FROM CONNECTION shop;

-- columns, types and key as upstream
CREATE TABLE shipments FROM CONNECTION shop TABLE 'public.shipments';

-- the rows of a query, stored and kept up to date
CREATE MATERIALIZED VIEW revenue AS
SELECT customer_name, count(*) AS orders, sum(price) AS revenue FROM orders GROUP BY customer_name;
