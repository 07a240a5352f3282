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
-- sees what was committed before that statement. PL/pgSQL keeps the plans of its statements.
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

-- Returns 'replayed' and the recorded id, 'reused' if the fingerprint differs, or no row.
CREATE FUNCTION {schema}.find_token(
    the_token bytea, the_fingerprint bytea, the_time bigint, OUT outcome text, OUT item_id bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT CASE WHEN t.fingerprint = the_fingerprint THEN 'replayed' ELSE 'reused' END, t.id
    FROM {schema}.tokens t WHERE t.token = the_token AND t.valid_until > the_time;
END
$$;

-- Deletes up to so many records that have expired by the server's clock and by the caller's.
CREATE FUNCTION {schema}.delete_tokens(up_to bigint, the_time bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.tokens t USING (
        SELECT o.token FROM {schema}.tokens o WHERE o.expires <= now()
        ORDER BY o.expires LIMIT up_to FOR UPDATE SKIP LOCKED
    ) old WHERE t.token = old.token AND t.valid_until <= the_time;
END
$$;

-- Records a token, unless another call has recorded it meanwhile. Returns whether it did. Deletes
-- two expired records: more than it adds, so that they do not pile up.
CREATE FUNCTION {schema}.record_token(
    the_token bytea, the_fingerprint bytea, the_time bigint, until bigint, item_id bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tokens AS t (token, fingerprint, id, valid_until, expires)
    VALUES (the_token, the_fingerprint, item_id, until,
        now() + make_interval(secs => until - the_time))
    ON CONFLICT (token) DO UPDATE SET fingerprint = excluded.fingerprint, id = excluded.id,
        valid_until = excluded.valid_until, expires = excluded.expires
        WHERE t.valid_until <= the_time;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.delete_tokens(2, the_time);
    RETURN true;
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
        WHEN EXISTS (SELECT FROM {schema}.tokens t WHERE t.token = u.token) THEN 0
        ELSE nextval('{schema}.pet_ids') END) INTO ids
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
    RETURN QUERY
    SELECT CASE WHEN u.id = ANY (new_ids) THEN 'done'
        WHEN t.fingerprint <> u.fingerprint THEN 'reused'
        WHEN u.id = 0 AND NOT EXISTS (SELECT FROM {schema}.pets p WHERE p.id = t.id) THEN 'deleted'
        ELSE 'replayed' END, t.id
    FROM unnest(the_tokens, fingerprints, ids) WITH ORDINALITY
        AS u (token, fingerprint, id, position)
    JOIN {schema}.tokens t ON t.token = u.token
    ORDER BY u.position;
    GET DIAGNOSTICS found_records = ROW_COUNT;
    IF found_records < cardinality(ids) THEN  -- one that was there has expired and was deleted
        RAISE serialization_failure USING MESSAGE = 'a token expired at the same time';
    END IF;
    -- At the end, for it may delete a record of this call that has expired from the beginning.
    IF new_ids IS NOT NULL THEN
        PERFORM {schema}.delete_tokens(
            2 * cardinality(new_ids), (SELECT min(moment) FROM unnest(times) moment));
    END IF;
END
$$;

-- Makes the pet pending, on the condition that it is available, and stores its order. A call that
-- has waited for the row of the pet looks for the token again: another may have used it meanwhile.
-- 'deleted' means that the token was recorded with an order that is no longer there.
CREATE FUNCTION {schema}.place_order(
    the_pet bigint, at timestamptz,
    the_token bytea, the_fingerprint bytea, the_time bigint, until bigint,
    OUT outcome text, OUT item_id bigint
) LANGUAGE plpgsql {plans} AS $$
DECLARE
    reserved boolean;
BEGIN
    FOR attempt IN 1..2 LOOP
        IF the_token IS NOT NULL THEN
            SELECT f.outcome, f.item_id INTO outcome, item_id
            FROM {schema}.find_token(the_token, the_fingerprint, the_time) f;
            IF FOUND THEN
                IF outcome = 'replayed' AND NOT EXISTS (
                    SELECT FROM {schema}.orders o WHERE o.id = item_id
                ) THEN
                    outcome := 'deleted';
                END IF;
                RETURN;
            END IF;
        END IF;
        UPDATE {schema}.pets p SET status = 'pending'
        WHERE p.id = the_pet AND p.status = 'available';
        reserved := FOUND;
        EXIT WHEN reserved OR the_token IS NULL;
    END LOOP;
    IF NOT reserved THEN
        PERFORM FROM {schema}.pets p WHERE p.id = the_pet;
        outcome := CASE WHEN FOUND THEN 'conflict' ELSE 'missing' END;
        RETURN;
    END IF;
    item_id := nextval('{schema}.order_ids');
    INSERT INTO {schema}.orders VALUES (item_id, the_pet, at, 'placed');
    IF the_token IS NOT NULL AND NOT {schema}.record_token(
        the_token, the_fingerprint, the_time, until, item_id
    ) THEN  -- by an order of another pet; this one is undone, and the caller tries again
        RAISE serialization_failure USING MESSAGE = 'the token was used at the same time';
    END IF;
    outcome := 'done';
END
$$;

-- Completes or cancels a placed order and gives its pet the matching status.
CREATE FUNCTION {schema}.update_order(
    the_order bigint, new_status text, new_pet_status text,
    OUT outcome text, OUT the_pet bigint, OUT status text, OUT at timestamptz
) LANGUAGE plpgsql {plans} AS $$
BEGIN
    IF new_status <> 'placed' THEN
        UPDATE {schema}.orders o SET status = new_status
        WHERE o.id = the_order AND o.status = 'placed'
        RETURNING o.pet_id, o.status, o.placed_at INTO the_pet, status, at;
        IF FOUND THEN
            UPDATE {schema}.pets p SET status = new_pet_status WHERE p.id = the_pet;
            outcome := 'done';
            RETURN;
        END IF;
    END IF;
    SELECT o.pet_id, o.status, o.placed_at INTO the_pet, status, at
    FROM {schema}.orders o WHERE o.id = the_order;
    outcome := CASE
        WHEN NOT FOUND THEN 'missing' WHEN status = new_status THEN 'done' ELSE 'conflict' END;
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
