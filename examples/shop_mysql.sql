-- A shop's tables out of MySQL or MariaDB (which is recognised by itself):  headwater run examples/shop_mysql.sql
-- The file may be run again and again: a definition that is there already is a no-op.

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

-- everything as the upstream has it; tinyint(1) is a boolean
CREATE TABLE shipments FROM CONNECTION shop;
