-- When a record was written, by a clock in the file.
ALTER TABLE retries ADD COLUMN minute INTEGER NOT NULL DEFAULT 0;
CREATE TABLE record_clock (minute INTEGER NOT NULL) STRICT;
INSERT INTO record_clock VALUES (0);
