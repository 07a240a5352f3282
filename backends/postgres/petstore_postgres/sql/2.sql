-- The tables of schema version 2: a store has an identity, by which it is told from any other.
ALTER TABLE {schema}.store ADD COLUMN identity uuid NOT NULL DEFAULT gen_random_uuid();
