-- The tables of schema version 1. {schema} stands for the name of the schema.

-- Names are UTF-8: text cannot hold U+0000, and a database may have another encoding.
CREATE TABLE {schema}.pets (
    id bigint PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    category_id bigint NOT NULL,
    name bytea NOT NULL,
    status text COLLATE "C" CHECK (status IN ('available', 'pending', 'sold'))
);
CREATE INDEX pets_by_status ON {schema}.pets (status, id) WHERE status IS NOT NULL;
CREATE SEQUENCE {schema}.pet_ids MAXVALUE 9007199254740991 OWNED BY {schema}.pets.id;

CREATE TABLE {schema}.orders (
    id bigint PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    pet_id bigint NOT NULL REFERENCES {schema}.pets (id),
    placed_at timestamptz NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (status IN ('placed', 'completed', 'cancelled'))
);
CREATE INDEX orders_by_status ON {schema}.orders (status, id);
-- A second line of defense: an order is only placed if its pet is available.
CREATE UNIQUE INDEX orders_live ON {schema}.orders (pet_id)
    WHERE status IN ('placed', 'completed');
CREATE SEQUENCE {schema}.order_ids MAXVALUE 9007199254740991 OWNED BY {schema}.orders.id;

-- The records of tokens. A record is ignored from valid_until on, by the caller's clock in seconds
-- since 1970. It is deleted only once it has expired by the server's clock, too, so that a caller
-- whose clock is ahead deletes none that others need.
CREATE TABLE {schema}.tokens (
    token bytea PRIMARY KEY,
    fingerprint bytea NOT NULL,
    id bigint NOT NULL,
    valid_until bigint NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX tokens_by_expiry ON {schema}.tokens (expires);
