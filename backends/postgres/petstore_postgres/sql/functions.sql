-- The functions of the newest schema version: each upgrade drops all functions of the schema, except
-- those of triggers, which are not ours, and creates these. {schema} stands for the name of the
-- schema, {plans} for settings of the planner.
--
-- Processes of an older release may still run then. They call what they knew, so a function that
-- has come to mean something else gets another name or other parameters: their calls fail, and
-- change nothing, until they are replaced.
--
-- Every call of the repository is one function, so it is one round trip and one transaction, also
-- through PgBouncer. A function that writes is VOLATILE: at READ COMMITTED each of its statements
-- sees what was committed before that statement. PL/pgSQL keeps the plans of its statements; EXISTS
-- in a result column may become a hash of the whole table, so a subquery stands there.
DO $$
DECLARE
    old regprocedure;
BEGIN
    FOR old IN SELECT oid FROM pg_proc
        WHERE pronamespace = '{schema}'::regnamespace AND prorettype <> 'trigger'::regtype
    LOOP
        EXECUTE 'DROP ROUTINE ' || old;
    END LOOP;
END
$$;

-- Deletes up to so many records that have expired by the server's clock and by the caller's. If
-- there are only some that have not expired by the caller's, they are left for later, a day at most:
-- otherwise those of one caller whose clock was ahead would hold up all others.
CREATE FUNCTION {schema}.delete_tokens(up_to bigint, the_time bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.tokens o WHERE o.expires <= now() ORDER BY o.expires LIMIT 1;
    IF NOT FOUND THEN  -- as almost always: this is cheaper than to delete nothing
        RETURN;
    END IF;
    DELETE FROM {schema}.tokens t USING (
        SELECT o.token FROM {schema}.tokens o WHERE o.expires <= now()
        ORDER BY o.expires LIMIT up_to FOR UPDATE SKIP LOCKED
    ) old WHERE t.token = old.token AND t.valid_until <= the_time;
    IF NOT FOUND THEN
        UPDATE {schema}.tokens t
        SET expires = now() + make_interval(secs => least(t.valid_until - the_time, 86400))
        FROM (
            SELECT o.token FROM {schema}.tokens o WHERE o.expires <= now()
            ORDER BY o.expires LIMIT up_to FOR UPDATE SKIP LOCKED
        ) old WHERE t.token = old.token;
    END IF;
END
$$;

-- Stores pets; returns their ids in the order of the arguments.
CREATE FUNCTION {schema}.create_pets(
    categories bigint[], names bytea[], statuses text[], OUT ids bigint[]
) LANGUAGE plpgsql {plans} AS $$
BEGIN
    SELECT array_agg(nextval('{schema}.pet_ids')) INTO ids FROM unnest(categories);
    INSERT INTO {schema}.pets (id, category_id, name, status)
    SELECT * FROM unnest(ids, categories, names, statuses);
END
$$;

-- Stores pets, each unless its token was used. Of calls with one token, the first position has it;
-- those of other transactions that overlap wait for the first of them to end. Tokens are taken in
-- ascending order, so that two calls do not wait for each other. Returns a row for each position:
-- 'deleted' if the token was recorded with a pet that is no longer there.
CREATE FUNCTION {schema}.create_pets_once(
    categories bigint[], names bytea[], statuses text[],
    the_tokens bytea[], fingerprints bytea[], times bigint[], untils bigint[]
) RETURNS TABLE (outcome text, item_id bigint) LANGUAGE plpgsql {plans} AS $$
DECLARE
    ids bigint[];
    new_ids bigint[];
    found_records int;
BEGIN
    DELETE FROM {schema}.tokens t USING unnest(the_tokens, times) AS u (token, moment)
    WHERE t.token = u.token AND t.valid_until <= u.moment;
    -- A retry takes no id: there may be none left. So it is 0, which is not stored.
    SELECT array_agg(CASE
        WHEN (SELECT t.id FROM {schema}.tokens t WHERE t.token = u.token) IS NULL
        THEN nextval('{schema}.pet_ids') ELSE 0 END) INTO ids
    FROM unnest(the_tokens) AS u (token);
    WITH recorded AS (
        INSERT INTO {schema}.tokens AS t (token, fingerprint, id, valid_until, expires)
        SELECT DISTINCT ON (u.token) u.token, u.fingerprint, u.id, u.until,
            now() + make_interval(secs => u.until - u.moment)
        FROM unnest(the_tokens, fingerprints, ids, times, untils) WITH ORDINALITY
            AS u (token, fingerprint, id, moment, until, position)
        WHERE u.id > 0 ORDER BY u.token, u.position ON CONFLICT DO NOTHING RETURNING t.id
    )
    SELECT array_agg(r.id) INTO new_ids FROM recorded r;
    INSERT INTO {schema}.pets (id, category_id, name, status)
    SELECT * FROM unnest(ids, categories, names, statuses) AS u (id)
    WHERE u.id = ANY (new_ids);
    IF cardinality(new_ids) = cardinality(ids) THEN
        RETURN QUERY SELECT 'done', u.id FROM unnest(ids) WITH ORDINALITY AS u (id, position)
        ORDER BY u.position;
    ELSE
        RETURN QUERY
        SELECT CASE WHEN u.id = ANY (new_ids) THEN 'done'
            WHEN t.fingerprint <> u.fingerprint THEN 'reused'
            WHEN u.id = 0
                AND (SELECT p.id FROM {schema}.pets p WHERE p.id = t.id) IS NULL THEN 'deleted'
            ELSE 'replayed' END, t.id
        FROM unnest(the_tokens, fingerprints, ids) WITH ORDINALITY
            AS u (token, fingerprint, id, position)
        JOIN {schema}.tokens t ON t.token = u.token
        ORDER BY u.position;
        GET DIAGNOSTICS found_records = ROW_COUNT;
        IF found_records < cardinality(ids) THEN  -- one that was there has expired and was deleted
            RAISE serialization_failure USING MESSAGE = 'a token expired at the same time';
        END IF;
    END IF;
    -- At the end, for it may delete a record of this call that has expired from the beginning.
    IF new_ids IS NOT NULL THEN
        PERFORM {schema}.delete_tokens(
            2 * cardinality(new_ids), (SELECT min(moment) FROM unnest(times) moment));
    END IF;
END
$$;

-- Makes pets pending, each on the condition that it is available, and stores their orders. Returns a
-- row for each position. Of the calls with one token, and of those for one pet, only the first takes
-- effect; the others find what it has done. 'deleted' means that the token was recorded with an
-- order that is no longer there.
--
-- With a wait_ms of 0 it skips pets that other transactions have locked: 'locked' means that nothing
-- was done for a position, and that it must be sent again, by a call that waits, for each lock so
-- many milliseconds at most. Tokens come after pets, in ascending order, so that two calls do not
-- wait for each other.
CREATE FUNCTION {schema}.place_orders(
    the_pets bigint[], moments timestamptz[],
    the_tokens bytea[], fingerprints bytea[], times bigint[], untils bigint[], wait_ms int
) RETURNS TABLE (outcome text, item_id bigint) LANGUAGE plpgsql {plans} AS $$
DECLARE
    reserved bigint[];
    ids bigint[];
    to_record bigint;
    recorded bigint;
BEGIN
    IF wait_ms > 0 THEN
        PERFORM set_config('lock_timeout', wait_ms::text, true);
        PERFORM FROM {schema}.pets p WHERE p.id = ANY (the_pets) ORDER BY p.id FOR NO KEY UPDATE;
    END IF;
    WITH unrecorded AS (
        SELECT DISTINCT ON (u.token, u.own) u.pet_id, u.position
        FROM (
            SELECT c.*, CASE WHEN c.token IS NULL THEN c.position END AS own
            FROM unnest(the_pets, the_tokens, times) WITH ORDINALITY
                AS c (pet_id, token, moment, position)
        ) u
        WHERE NOT EXISTS (
            SELECT FROM {schema}.tokens t WHERE t.token = u.token AND t.valid_until > u.moment)
        ORDER BY u.token, u.own, u.position
    ), firsts AS (
        SELECT DISTINCT ON (u.pet_id) u.pet_id, u.position
        FROM unrecorded u ORDER BY u.pet_id, u.position
    ), changed AS (
        UPDATE {schema}.pets p SET status = 'pending'
        FROM (
            SELECT a.id, f.position FROM firsts f JOIN {schema}.pets a ON a.id = f.pet_id
            WHERE a.status = 'available' FOR NO KEY UPDATE OF a SKIP LOCKED
        ) free
        WHERE p.id = free.id RETURNING free.position
    )
    SELECT array_agg(c.position) INTO reserved FROM changed c;
    SELECT array_agg(CASE WHEN u.position = ANY (reserved)
        THEN nextval('{schema}.order_ids') END),
        count(u.token) FILTER (WHERE u.position = ANY (reserved)) INTO ids, to_record
    FROM unnest(the_tokens) WITH ORDINALITY AS u (token, position);
    INSERT INTO {schema}.orders (id, pet_id, placed_at, status)
    SELECT u.id, u.pet_id, u.placed_at, 'placed'
    FROM unnest(ids, the_pets, moments) AS u (id, pet_id, placed_at) WHERE u.id IS NOT NULL;
    IF to_record > 0 THEN
        INSERT INTO {schema}.tokens AS t (token, fingerprint, id, valid_until, expires)
        SELECT u.token, u.fingerprint, u.id, u.until,
            now() + make_interval(secs => u.until - u.moment)
        FROM unnest(the_tokens, fingerprints, ids, times, untils)
            AS u (token, fingerprint, id, moment, until)
        WHERE u.id IS NOT NULL AND u.token IS NOT NULL ORDER BY u.token
        ON CONFLICT (token) DO UPDATE SET fingerprint = excluded.fingerprint, id = excluded.id,
            valid_until = excluded.valid_until, expires = excluded.expires
            WHERE t.valid_until <= (SELECT max(moment) FROM unnest(times) moment);
        GET DIAGNOSTICS recorded = ROW_COUNT;
        IF recorded < to_record THEN  -- with another pet's order; all is undone, and tried again
            RAISE serialization_failure USING MESSAGE = 'a token was used at the same time';
        END IF;
    END IF;
    IF cardinality(reserved) = cardinality(the_pets) THEN
        RETURN QUERY SELECT 'done', u.id FROM unnest(ids) WITH ORDINALITY AS u (id, position)
        ORDER BY u.position;
    ELSE
        RETURN QUERY
        SELECT CASE WHEN u.id IS NOT NULL THEN 'done'
            WHEN t.fingerprint <> u.fingerprint THEN 'reused'
            WHEN t.id IS NOT NULL
                AND (SELECT o.id FROM {schema}.orders o WHERE o.id = t.id) IS NULL THEN 'deleted'
            WHEN t.id IS NOT NULL THEN 'replayed'
            WHEN p.id IS NULL THEN 'missing'
            WHEN p.status = 'available' THEN 'locked'
            ELSE 'conflict' END, coalesce(u.id, t.id)
        FROM unnest(the_pets, the_tokens, fingerprints, times, ids) WITH ORDINALITY
            AS u (pet_id, token, fingerprint, moment, id, position)
        LEFT JOIN {schema}.tokens t ON t.token = u.token AND t.valid_until > u.moment
        LEFT JOIN {schema}.pets p ON p.id = u.pet_id
        ORDER BY u.position;
    END IF;
    IF recorded > 0 THEN
        PERFORM {schema}.delete_tokens(
            2 * recorded, (SELECT min(moment) FROM unnest(times) moment));
    END IF;
END
$$;

-- Completes or cancels placed orders and gives their pets the matching statuses. Returns a row for
-- each position: of those for one order the first takes effect. Skips orders that are locked, or
-- whose pets are, as place_orders does; calls that wait take an order, then its pet.
CREATE FUNCTION {schema}.update_orders(
    the_orders bigint[], new_statuses text[], new_pet_statuses text[], wait_ms int
) RETURNS TABLE (outcome text, the_pet bigint, at timestamptz) LANGUAGE plpgsql {plans} AS $$
BEGIN
    IF wait_ms > 0 THEN
        PERFORM set_config('lock_timeout', wait_ms::text, true);
        PERFORM FROM {schema}.orders o WHERE o.id = ANY (the_orders) AND o.status = 'placed'
        ORDER BY o.id FOR NO KEY UPDATE;
        PERFORM FROM {schema}.orders o JOIN {schema}.pets p ON p.id = o.pet_id
        WHERE o.id = ANY (the_orders) AND o.status = 'placed'
        ORDER BY p.id FOR NO KEY UPDATE OF p;
    END IF;
    WITH firsts AS (
        SELECT DISTINCT ON (u.id) u.id, u.status, u.pet_status
        FROM unnest(the_orders, new_statuses, new_pet_statuses) WITH ORDINALITY
            AS u (id, status, pet_status, position)
        WHERE u.status <> 'placed' ORDER BY u.id, u.position
    ), free AS (
        SELECT o.id, o.pet_id, f.status, f.pet_status
        FROM firsts f JOIN {schema}.orders o ON o.id = f.id JOIN {schema}.pets p ON p.id = o.pet_id
        WHERE o.status = 'placed' FOR NO KEY UPDATE OF o, p SKIP LOCKED
    ), changed AS (
        UPDATE {schema}.orders o SET status = f.status FROM free f WHERE o.id = f.id
    )
    UPDATE {schema}.pets p SET status = f.pet_status FROM free f WHERE p.id = f.pet_id;
    RETURN QUERY
    SELECT CASE WHEN o.id IS NULL THEN 'missing'
        WHEN o.status = u.status THEN 'done'
        WHEN o.status = 'placed' THEN 'locked'
        ELSE 'conflict' END, o.pet_id, o.placed_at
    FROM unnest(the_orders, new_statuses) WITH ORDINALITY AS u (id, status, position)
    LEFT JOIN {schema}.orders o ON o.id = u.id
    ORDER BY u.position;
END
$$;

-- Makes the ids that a sequence assigns later higher than this one. Calls that store items wait for
-- each other, so that none lowers what another has raised. A create does not wait: if it takes an
-- id between the comparison and setval, that id comes a second time, the primary key refuses it,
-- and the caller tries again.
CREATE FUNCTION {schema}.raise_ids(ids regclass, highest bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    assigned bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.raise_ids', 0));
    EXECUTE format('SELECT last_value FROM %s', ids) INTO assigned;
    IF highest >= assigned THEN
        PERFORM setval(ids, highest);
    END IF;
END
$$;

-- Stores pets of another store under their ids. Returns the position of the first that is refused,
-- because a different one has its id, or NULL. Expects at first that none is stored: ON CONFLICT
-- would make each pet a third slower.
CREATE FUNCTION {schema}.restore_pets(
    ids bigint[], categories bigint[], names bytea[], statuses text[]
) RETURNS bigint LANGUAGE plpgsql {plans} AS $$
DECLARE
    stored bigint;
BEGIN
    PERFORM {schema}.raise_ids('{schema}.pet_ids', (SELECT max(i) FROM unnest(ids) i));
    BEGIN
        INSERT INTO {schema}.pets (id, category_id, name, status)
        SELECT * FROM unnest(ids, categories, names, statuses);
        RETURN NULL;
    EXCEPTION WHEN unique_violation THEN
        NULL;
    END;
    INSERT INTO {schema}.pets (id, category_id, name, status)
    SELECT u.id, u.category_id, u.name, u.status
    FROM unnest(ids, categories, names, statuses) WITH ORDINALITY
        AS u (id, category_id, name, status, position)
    ORDER BY u.position ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored = cardinality(ids) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT min(u.position)
        FROM unnest(ids, categories, names, statuses) WITH ORDINALITY
            AS u (id, category_id, name, status, position)
        LEFT JOIN {schema}.pets p ON p.id = u.id
        WHERE (p.category_id, p.name, p.status)
            IS DISTINCT FROM (u.category_id, u.name, u.status)
    );
END
$$;

-- Stores orders of another store under their ids, each on the condition that its pet has the status
-- given. Returns the position of the first that is refused, and why, or no row.
CREATE FUNCTION {schema}.restore_orders(
    ids bigint[], pet_ids bigint[], moments timestamptz[], statuses text[], pet_statuses text[],
    OUT refused bigint, OUT outcome text
) RETURNS SETOF record LANGUAGE plpgsql {plans} AS $$
DECLARE
    stored bigint;
BEGIN
    PERFORM {schema}.raise_ids('{schema}.order_ids', (SELECT max(i) FROM unnest(ids) i));
    -- In ascending order, so that two calls do not wait for each other.
    PERFORM FROM {schema}.pets p WHERE p.id = ANY (pet_ids) ORDER BY p.id FOR NO KEY UPDATE;
    INSERT INTO {schema}.orders (id, pet_id, placed_at, status)
    SELECT u.id, u.pet_id, u.placed_at, u.status
    FROM unnest(ids, pet_ids, moments, statuses, pet_statuses) WITH ORDINALITY
        AS u (id, pet_id, placed_at, status, pet_status, position)
    JOIN {schema}.pets p ON p.id = u.pet_id
    WHERE u.status = 'cancelled' OR p.status = u.pet_status
    ORDER BY u.position ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT u.position, CASE WHEN o.id IS NULL AND p.id IS NULL THEN 'missing' ELSE 'conflict' END
    FROM unnest(ids, pet_ids, moments, statuses) WITH ORDINALITY
        AS u (id, pet_id, placed_at, status, position)
    LEFT JOIN {schema}.orders o ON o.id = u.id
    LEFT JOIN {schema}.pets p ON p.id = u.pet_id
    WHERE (o.pet_id, o.placed_at, o.status) IS DISTINCT FROM (u.pet_id, u.placed_at, u.status)
    ORDER BY u.position LIMIT 1;
END
$$;

-- Stores records of another store. Returns the position of the first that is refused, because a
-- different one has its token, or NULL. They expire by the server's clock at their time, too.
CREATE FUNCTION {schema}.restore_tokens(
    the_tokens bytea[], fingerprints bytea[], untils bigint[], ids bigint[]
) RETURNS bigint LANGUAGE plpgsql {plans} AS $$
BEGIN
    INSERT INTO {schema}.tokens (token, fingerprint, id, valid_until, expires)
    SELECT u.token, u.fingerprint, u.id, u.until, to_timestamp(least(u.until, 253402300799))
    FROM unnest(the_tokens, fingerprints, untils, ids) WITH ORDINALITY
        AS u (token, fingerprint, until, id, position)
    ORDER BY u.token, u.position ON CONFLICT DO NOTHING;
    RETURN (
        SELECT min(u.position)
        FROM unnest(the_tokens, fingerprints, untils, ids) WITH ORDINALITY
            AS u (token, fingerprint, until, id, position)
        JOIN {schema}.tokens t ON t.token = u.token
        WHERE (t.fingerprint, t.valid_until, t.id) <> (u.fingerprint, u.until, u.id)
    );
END
$$;

-- Records in the order of their tokens, after one token, that have not expired at the time given.
CREATE FUNCTION {schema}.list_tokens(after bytea, up_to bigint, the_time bigint)
RETURNS TABLE (token bytea, fingerprint bytea, until bigint, id bigint)
LANGUAGE plpgsql STABLE {plans} AS $$
BEGIN
    RETURN QUERY SELECT t.token, t.fingerprint, t.valid_until, t.id
    FROM {schema}.tokens t WHERE t.token > after AND t.valid_until > the_time
    ORDER BY t.token LIMIT up_to;
END
$$;

CREATE FUNCTION {schema}.get_pets(the_ids bigint[])
RETURNS TABLE (id bigint, category_id bigint, name bytea, status text)
LANGUAGE plpgsql STABLE {plans} AS $$
BEGIN
    RETURN QUERY SELECT p.id, p.category_id, p.name, p.status
    FROM {schema}.pets p WHERE p.id = ANY (the_ids);
END
$$;

CREATE FUNCTION {schema}.get_orders(the_ids bigint[])
RETURNS TABLE (id bigint, pet_id bigint, placed_at timestamptz, status text)
LANGUAGE plpgsql STABLE {plans} AS $$
BEGIN
    RETURN QUERY SELECT o.id, o.pet_id, o.placed_at, o.status
    FROM {schema}.orders o WHERE o.id = ANY (the_ids);
END
$$;

-- The pages of several callers; page is the number of the caller, from 1. A page of a status is
-- written so that only the index by status can sort it: with "status = x AND id > y ORDER BY id" the
-- planner may prefer the primary key, and read all pets of other statuses.
CREATE FUNCTION {schema}.list_pets(afters bigint[], counts bigint[], statuses text[])
RETURNS TABLE (page int, id bigint, category_id bigint, name bytea, status text)
LANGUAGE plpgsql STABLE {plans} AS $$
BEGIN
    FOR page IN 1 .. cardinality(afters) LOOP
        IF statuses[page] IS NULL THEN
            RETURN QUERY SELECT page, p.id, p.category_id, p.name, p.status
            FROM {schema}.pets p WHERE p.id > afters[page]
            ORDER BY p.id LIMIT counts[page];
        ELSE
            RETURN QUERY SELECT page, p.id, p.category_id, p.name, p.status
            FROM {schema}.pets p
            WHERE (p.status, p.id) > (statuses[page], afters[page])
                AND p.status <= statuses[page]
            ORDER BY p.status, p.id LIMIT counts[page];
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.list_orders(afters bigint[], counts bigint[], statuses text[])
RETURNS TABLE (page int, id bigint, pet_id bigint, placed_at timestamptz, status text)
LANGUAGE plpgsql STABLE {plans} AS $$
BEGIN
    FOR page IN 1 .. cardinality(afters) LOOP
        IF statuses[page] IS NULL THEN
            RETURN QUERY SELECT page, o.id, o.pet_id, o.placed_at, o.status
            FROM {schema}.orders o WHERE o.id > afters[page]
            ORDER BY o.id LIMIT counts[page];
        ELSE
            RETURN QUERY SELECT page, o.id, o.pet_id, o.placed_at, o.status
            FROM {schema}.orders o
            WHERE (o.status, o.id) > (statuses[page], afters[page])
                AND o.status <= statuses[page]
            ORDER BY o.status, o.id LIMIT counts[page];
        END IF;
    END LOOP;
END
$$;
