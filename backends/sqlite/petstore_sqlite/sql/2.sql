-- placed_at is in microseconds since 1970, until in seconds. The unique index orders_live is a
-- second line of defense: an order is only placed if its pet is available.
CREATE TABLE orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND 9007199254740991),
    pet_id INTEGER NOT NULL REFERENCES pets (id),
    status TEXT NOT NULL CHECK (status IN ('placed', 'completed', 'cancelled')),
    placed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX orders_by_status ON orders (status, id);
CREATE UNIQUE INDEX orders_live ON orders (pet_id) WHERE status IN ('placed', 'completed');
CREATE TABLE retries (
    token BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    id INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX retries_by_until ON retries (until);
