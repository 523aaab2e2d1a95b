-- A shop's tables from MySQL or MariaDB (detected automatically):  headwater run examples/shop_mysql.sql
-- The file can be run repeatedly: a definition that already exists is a no-op.

CREATE CONNECTION shop WITH (
    type = 'mysql-cdc',
    hostname = 'localhost',
    port = '3306',
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

-- columns, types and key as upstream; tinyint(1) is a boolean
CREATE TABLE shipments FROM CONNECTION shop;
