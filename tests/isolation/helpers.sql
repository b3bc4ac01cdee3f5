-- What the specs share, loaded into their database once. Everything happens in one queue, "q", which new_queue makes anew
-- for each permutation, so that its first message always has the id 1. Nothing here returns a token, a time or a
-- transaction id: the output of a spec is the same in each run.
CREATE EXTENSION pg_baton;

CREATE TABLE sent (id bigint);           -- business rows, written in the transaction that enqueues
CREATE TABLE done (id bigint, how text); -- effects, written in the transaction that settles

-- Tokens are kept in files in the data directory: a table would forget them with the transaction that claims.
CREATE FUNCTION keep_token(label text, token text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('COPY (SELECT %L) TO %L', token, current_setting('data_directory') || '/token_' || label);
END
$$;
CREATE FUNCTION token(label text) RETURNS text
    LANGUAGE sql AS $$
    SELECT rtrim(pg_read_file('token_' || label), E'\n');
$$;

-- A label is a letter for the claim and the id of the message: a1, b1.
CREATE FUNCTION id_of(label text) RETURNS bigint
    LANGUAGE sql IMMUTABLE AS $$
    SELECT substring(label FROM '[0-9]+$')::bigint;
$$;

-- Enqueues n messages, each with its business row.
CREATE FUNCTION send(n integer DEFAULT 1, delay interval DEFAULT NULL) RETURNS SETOF bigint
    LANGUAGE sql AS $$
    INSERT INTO sent
    SELECT e.id
    FROM generate_series(1, n) i, LATERAL baton.enqueue('q', to_jsonb(i), delay => delay) e
    RETURNING id;
$$;

-- The queue's number is always 1, so that a spec can name its segments: baton_data.q1_0, baton_data.q1_1.
CREATE PROCEDURE new_queue(messages integer DEFAULT 0, max_attempts integer DEFAULT NULL, backoff interval DEFAULT '50 s',
                           segments integer DEFAULT 2, segment_bytes bigint DEFAULT NULL)
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM baton.drop_queue('q', if_exists => true, discard => true);
    PERFORM setval('baton_internal.queue_id_seq', 1, false);
    TRUNCATE sent, done;
    PERFORM baton.create_queue('q', max_attempts => new_queue.max_attempts, backoff => new_queue.backoff,
                               segments => new_queue.segments, segment_bytes => new_queue.segment_bytes);
    PERFORM send(messages);
END
$$;

-- Claims, and keeps the tokens as <label><id>.
CREATE FUNCTION claim_as(label text, max_items integer DEFAULT 1, lease interval DEFAULT NULL)
    RETURNS TABLE (id bigint, generation bigint, failures integer)
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT d.id, d.generation, d.failures
    FROM baton.claim('q', worker => label, max_items => claim_as.max_items, lease => claim_as.lease) d,
         LATERAL keep_token(label || d.id, d.token);
END
$$;

CREATE FUNCTION take_as(label text, max_items integer DEFAULT 1)
    RETURNS TABLE (id bigint, generation integer, failures integer)
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH t AS (SELECT * FROM baton.take('q', worker => label, max_items => take_as.max_items)),
         d AS (INSERT INTO done SELECT t.id, 'taken by ' || label FROM t)
    SELECT t.id, t.generation, t.failures FROM t;
END
$$;

-- Acknowledges in one transaction with the effect.
CREATE FUNCTION ack_as(label text) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    answer := baton.ack(token(label));
    INSERT INTO done VALUES (id_of(label), 'acked by ' || rtrim(label, '0123456789'));
    RETURN answer;
END
$$;

-- Labels and verdicts are separated by spaces (a step of a spec cannot contain a brace).
CREATE FUNCTION settle_as(labels text, verdicts text DEFAULT 'ack') RETURNS TABLE (label text, outcome text)
    LANGUAGE plpgsql AS $$
DECLARE
    label_list text[] := string_to_array(labels, ' ');
BEGIN
    RETURN QUERY
    WITH s AS (SELECT label_list[o.ord] AS label, o.outcome
               FROM baton.settle((SELECT array_agg(token(u.l) ORDER BY u.n) FROM unnest(label_list) WITH ORDINALITY u(l, n)),
                                 string_to_array(verdicts, ' ')) o),
         d AS (INSERT INTO done
               SELECT id_of(s.label), 'acked by ' || rtrim(s.label, '0123456789') FROM s WHERE s.outcome = 'acked')
    SELECT s.label, s.outcome FROM s;
END
$$;

CREATE FUNCTION settle_and_claim_as(labels text, max_items integer DEFAULT 1)
    RETURNS TABLE (settled text, outcome text, claimed bigint, generation bigint)
    LANGUAGE plpgsql AS $$
DECLARE
    label_list text[] := string_to_array(labels, ' ');
BEGIN
    RETURN QUERY
    WITH s AS (SELECT label_list[o.ord] AS label, o.outcome, o.id, o.generation
               FROM baton.settle_and_claim('q', (SELECT array_agg(token(u.l) ORDER BY u.n)
                                                 FROM unnest(label_list) WITH ORDINALITY u(l, n)),
                                           max_items => settle_and_claim_as.max_items) o),
         d AS (INSERT INTO done
               SELECT id_of(s.label), 'acked by ' || rtrim(s.label, '0123456789') FROM s WHERE s.outcome = 'acked')
    SELECT s.label, s.outcome, s.id, s.generation FROM s;
END
$$;

-- What every verb says to a token, grouped by what it says. Each is called in a subtransaction that is rolled back, and none
-- waits for another settlement or claims anything. hand_back acts at once, so it is left out where it would succeed
-- and is not wanted; start acts at once, too, and keeps from handing back later: it is left out where it would succeed.
CREATE FUNCTION answers(label text, with_hand_back boolean DEFAULT true) RETURNS TABLE (answer text, verbs text)
    LANGUAGE plpgsql SET pg_baton.settle_timeout = 0 AS $$
DECLARE
    t text := quote_literal(token(label));
    call text;
    said text;
    all_said jsonb := '[]';
    live boolean := (SELECT outcome = 'extended' FROM baton.extend_batch(ARRAY[token(label)]));
BEGIN
    FOREACH call IN ARRAY ARRAY[
        'start(' || t || ')', 'extend(' || t || ')', 'ack(' || t || ')', 'ack_batch(ARRAY[' || t || '])', 'release(' || t || ')',
        'quarantine(' || t || ')', 'extend_batch(ARRAY[' || t || '])', 'settle(ARRAY[' || t || '], ''{release}'')',
        'settle_and_claim(''q'', ARRAY[' || t || '], classes => ''{none}'')', 'hand_back(ARRAY[' || t || '])'] LOOP
        CONTINUE WHEN call LIKE 'hand_back%' AND NOT with_hand_back OR call LIKE 'start%' AND live;
        BEGIN
            said := NULL;
            IF call ~ '^(extend_batch|hand_back|settle|settle_and_claim)\(' THEN
                EXECUTE 'SELECT outcome FROM baton.' || call INTO said;
            ELSE
                EXECUTE 'SELECT ''done'' FROM baton.' || call INTO said;
            END IF;
            IF said IN ('acked', 'released', 'scheduled', 'quarantined', 'extended', 'handed_back') THEN
                said := 'done';
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'RB000';
        EXCEPTION
            WHEN SQLSTATE 'RB000' THEN NULL;
            WHEN OTHERS THEN said := SQLSTATE || regexp_replace(SQLERRM, '^[a-z_]+ refused|1 of 1 tokens', '', 'g');
        END;
        all_said := all_said || jsonb_build_object('verb', split_part(call, '(', 1), 'said', said);
    END LOOP;
    RETURN QUERY
    SELECT e->>'said', string_agg(e->>'verb', ', ' ORDER BY n)
    FROM jsonb_array_elements(all_said) WITH ORDINALITY a(e, n)
    GROUP BY e->>'said'
    ORDER BY min(n);
END
$$;

-- The end of every permutation. First the queue's own check; then all that is left is taken, with a clock that is past every
-- lease and delay, and again with one that is past the backoffs; then each message that was sent must have had exactly one
-- end, and nothing else may have had any.
CREATE FUNCTION ending() RETURNS TABLE (id bigint, ended text)
    LANGUAGE plpgsql SET pg_baton.clock_offset = 0 AS $$
DECLARE
    ahead text;
BEGIN
    RETURN QUERY SELECT c.id, 'CHECK: ' || c.problem FROM baton.check('q') c;
    PERFORM baton.resume('q');
    FOREACH ahead IN ARRAY ARRAY['11d', '12d'] LOOP
        PERFORM set_config('pg_baton.clock_offset', ahead, true);
        FOR i IN 1..20 LOOP
            INSERT INTO done SELECT t.id, 'left over' FROM baton.take('q', max_items => 1000) t;
            EXIT WHEN NOT FOUND;
        END LOOP;
    END LOOP;
    RETURN QUERY SELECT c.id, 'CHECK: ' || c.problem FROM baton.check('q') c;
    RETURN QUERY
    WITH every_end AS (SELECT d.id, d.how FROM done d
                       UNION ALL
                       SELECT q.id, 'quarantined: ' || q.cause FROM baton.quarantined('q') q
                       UNION ALL
                       SELECT m.id, 'expired'
                       FROM baton_internal.map_slots('baton_data.q1_0') m
                       WHERE m.kind = 'expired' AND m.resolved IN ('gone', 'settling')),
         ends AS (SELECT e.id, string_agg(e.how, ' AND ' ORDER BY e.how) AS how, count(*) AS n FROM every_end e GROUP BY e.id)
    SELECT coalesce(s.id, e.id),
           CASE WHEN s.id IS NULL THEN 'NEVER SENT: ' || e.how
                WHEN e.id IS NULL THEN 'LOST'
                WHEN e.n > 1 THEN 'DOUBLED: ' || e.how
                ELSE e.how END
    FROM sent s
    FULL JOIN ends e USING (id)
    ORDER BY 1;
END
$$;

-- n large messages. In a ring of segments of 64 kB, 128 of them fill a segment, and writing moves on to the next.
CREATE PROCEDURE fill(n integer)
    LANGUAGE sql AS $$
    INSERT INTO sent
    SELECT e.id
    FROM generate_series(1, n) i,
         LATERAL baton.enqueue('q', to_jsonb((SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 20) j))) e;
$$;

-- ending() for many messages: how many had which end.
CREATE FUNCTION endings() RETURNS TABLE (messages bigint, ended text)
    LANGUAGE sql AS $$
    SELECT count(*), e.ended FROM ending() e GROUP BY e.ended ORDER BY e.ended;
$$;

-- Plain SQL at a message in a due-time bucket.
CREATE FUNCTION lock_later(id bigint) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    n integer;
    found bigint;
BEGIN
    FOR n IN 0 .. 17 LOOP
        EXECUTE format('SELECT m.id FROM baton_data.later_%s m WHERE m.id = $1 FOR UPDATE', n) INTO found USING id;
        IF found IS NOT NULL THEN RETURN found; END IF;
    END LOOP;
    RETURN NULL;
END
$$;
CREATE FUNCTION delete_later(id bigint) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    n integer;
    found bigint;
BEGIN
    FOR n IN 0 .. 17 LOOP
        EXECUTE format('DELETE FROM baton_data.later_%s m WHERE m.id = $1 RETURNING m.id', n) INTO found USING id;
        IF found IS NOT NULL THEN RETURN found; END IF;
    END LOOP;
    RETURN NULL;
END
$$;
