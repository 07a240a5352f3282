-- The identity of the store, and how many writes have assigned no id: see store.py.
ALTER TABLE retries RENAME TO tokens;
DROP INDEX retries_by_until;
CREATE INDEX tokens_by_until ON tokens (until);
CREATE TABLE store (identity TEXT NOT NULL, changes INTEGER NOT NULL) STRICT;
INSERT INTO store VALUES (lower(hex(randomblob(16))), 0);
