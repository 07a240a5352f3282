-- When a record was written, by another clock: see tokens.py. By that one, it was before the
-- machine was last restarted.
ALTER TABLE tokens RENAME COLUMN minute TO written;
DROP TABLE record_clock;
CREATE TABLE record_clock (boot TEXT NOT NULL, restarts INTEGER NOT NULL) STRICT;
INSERT INTO record_clock VALUES ('', 0);
