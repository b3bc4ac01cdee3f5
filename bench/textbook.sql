-- The textbook queue: the shape of the widely used SQL queues, written for this comparison. One table; a claim is an
-- UPDATE of what SKIP LOCKED finds, which makes a message invisible for a while; done is a DELETE. It is meant to be
-- as good as that shape gets: one queue without dynamic SQL, static statements whose plans are cached, set-based
-- batches, a B-tree that holds the order of delivery, so that a claim reads its messages from one end and sorts nothing.
-- Run by psql; drops what an earlier run left.

SET client_min_messages = warning;
DROP SCHEMA IF EXISTS textbook CASCADE;
CREATE SCHEMA textbook;

CREATE TABLE textbook.message (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    read_count  integer     NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    visible_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload     jsonb
);
-- With the id as second column first come is first served also among messages of one batch.
CREATE INDEX message_visible_at_idx ON textbook.message (visible_at, id);

CREATE FUNCTION textbook.send(payload jsonb, delay_s double precision DEFAULT 0) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    new_id bigint;
BEGIN
    INSERT INTO textbook.message (visible_at, payload)
    VALUES (clock_timestamp() + make_interval(secs => delay_s), send.payload)
    RETURNING id INTO new_id;
    RETURN new_id;
END
$$;

CREATE FUNCTION textbook.send_batch(payloads jsonb[], delay_s double precision DEFAULT 0) RETURNS SETOF bigint
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    visible_from CONSTANT timestamptz := clock_timestamp() + make_interval(secs => delay_s);
BEGIN
    RETURN QUERY
    INSERT INTO textbook.message (visible_at, payload)
    SELECT visible_from, p FROM unnest(payloads) AS p
    RETURNING id;
END
$$;

-- The clock is read into a variable: compared with a volatile function the index could not be used. One generic plan
-- for all calls: planning anew each time costs more than a claim of one message. The ids come as an array, because a
-- join with the table could be planned as a merge from its beginning, over everything dead there.
CREATE FUNCTION textbook.read(quantity integer, visibility_timeout_s double precision) RETURNS SETOF textbook.message
LANGUAGE plpgsql ROWS 10 SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    UPDATE textbook.message AS m
    SET visible_at = now_at + make_interval(secs => visibility_timeout_s),
        read_count = m.read_count + 1
    WHERE m.id = ANY (ARRAY(
        SELECT f.id
        FROM textbook.message AS f
        WHERE f.visible_at <= now_at
        ORDER BY f.visible_at, f.id
        LIMIT quantity
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING m.*;
END
$$;

CREATE FUNCTION textbook.delete(message_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM textbook.message WHERE id = message_id;
    RETURN FOUND;
END
$$;

CREATE FUNCTION textbook.delete_batch(message_ids bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql ROWS 100 SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    DELETE FROM textbook.message AS m
    WHERE m.id = ANY (message_ids)
    RETURNING m.id;
END
$$;
