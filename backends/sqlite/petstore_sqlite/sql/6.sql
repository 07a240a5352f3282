-- Records in the order in which they are written. A token is found by its first four bytes, so
-- that the one thing in which new records are far apart is small: record 7 says what it saves.
ALTER TABLE tokens RENAME TO records;
CREATE TABLE tokens (
    number INTEGER PRIMARY KEY,
    token BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    id INTEGER NOT NULL,
    until INTEGER NOT NULL,
    written INTEGER NOT NULL
) STRICT;
INSERT INTO tokens (token, fingerprint, id, until, written)
    SELECT token, fingerprint, id, until, written FROM records ORDER BY until;
DROP TABLE records;
CREATE INDEX tokens_by_start ON tokens (substr(token, 1, 4));
CREATE INDEX tokens_by_until ON tokens (until);
