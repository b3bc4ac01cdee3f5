-- A queue's view: INSERT and COPY enqueue, RETURNING, what cannot be inserted, UPDATE and DELETE refused.
\ir prelude.psql

SELECT plan(67);
SELECT baton.create_queue('q', max_payload_bytes => 1000, max_delay => '10 days') \gset
SELECT columns_are('baton_queue', 'q', ARRAY['id', 'state', 'message_id', 'routing_key', 'message_class', 'priority', 'enqueued_at', 'not_before', 'expires_at',
    'generation', 'failures', 'worker', 'lease_until', 'headers', 'payload_ref', 'payload', 'payload_bytes'], 'fixed columns');
SELECT is((SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'baton_queue.q'::regclass AND attnum > 13), 'headers,payload_ref,payload,payload_bytes', 'content last');

-- INSERT
INSERT INTO baton_queue.q (payload) VALUES ('{"a": 1}');
SELECT row_eq($$SELECT payload, generation, failures, priority FROM baton.claim('q')$$, ROW('{"a": 1}'::jsonb, 1::bigint, 0, 5), 'INSERT enqueues');
INSERT INTO baton_queue.q (message_id, routing_key, message_class, priority, expires_at, headers, payload_ref, payload)
    VALUES ('m', 'k', 'c', 5, now() + '1 day', '{"h": 1}', 'r', '2');
SELECT row_eq($$SELECT message_id, routing_key, message_class, headers, payload_ref, payload FROM baton.claim('q') WHERE expires_at > now() + '23 h'$$,
              ROW('m'::text, 'k'::text, 'c'::text, '{"h": 1}'::jsonb, 'r'::text, '2'::jsonb), 'all that can be given');
INSERT INTO baton_queue.q (payload_bytes) VALUES ('\x0001');
SELECT is((SELECT payload_bytes FROM baton.claim('q')), '\x0001'::bytea, 'bytes');
INSERT INTO baton_queue.q (payload, not_before) VALUES ('"later"', now() + '1 h'), ('"past"', now() - '1 h'::interval);
SELECT results_eq($$SELECT payload #>> '{}', state FROM baton_queue.q WHERE payload IN ('"later"', '"past"') ORDER BY id$$, $$VALUES ('later', 'scheduled'), ('past', 'ready')$$, 'not_before');
SELECT is((SELECT payload FROM baton.claim('q', max_items => 10)), '"past"', 'only what is due is handed out');
INSERT INTO baton_queue.q (payload) SELECT to_jsonb(i) FROM generate_series(1, 1777) i;
SELECT results_eq($$SELECT payload::int FROM baton.take('q', 10000)$$, 'SELECT generate_series(1, 1777)', 'INSERT of a SELECT: all, in order');
PREPARE ins (jsonb) AS INSERT INTO baton_queue.q (payload) VALUES ($1);
EXECUTE ins ('"p"');
SELECT is((SELECT payload FROM baton.take('q', 10)), '"p"', 'prepared');

-- RETURNING: what was enqueued
WITH i AS (INSERT INTO baton_queue.q (payload, routing_key) VALUES ('"r1"', 'k1'), ('"r2"', 'k2') RETURNING *) SELECT * INTO returned FROM i;
SELECT is((SELECT count(*)::int FROM returned r JOIN baton_queue.q v ON v.id = r.id AND v.payload = r.payload AND v.routing_key = r.routing_key), 2, 'RETURNING gives the ids under which the messages are found');
SELECT is_empty($$SELECT * FROM returned WHERE state IS DISTINCT FROM 'ready' OR enqueued_at IS NULL OR priority IS DISTINCT FROM 5$$, 'and what else is given by the queue');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 2, 'both are there');

-- COPY
COPY baton_queue.q (payload, routing_key) FROM STDIN;
{"copy": 1}	a
{"copy": 2}	b
"tab\\tin it"	\N
\.
SELECT results_eq($$SELECT payload, routing_key FROM baton.take('q', 10)$$, $$VALUES ('{"copy": 1}'::jsonb, 'a'), ('{"copy": 2}', 'b'), ('"tab\tin it"', NULL)$$, 'COPY');
COPY baton_queue.q (payload) FROM PROGRAM 'seq 1 2500';
SELECT results_eq($$SELECT payload::int FROM baton.take('q', 10000)$$, 'SELECT generate_series(1, 2500)', 'COPY of many: all, in order');
SELECT is(head_of($$COPY baton_queue.q (payload) FROM PROGRAM 'seq 1 600; echo x'$$), '22P02: invalid input syntax for type json', 'COPY with a bad line');
SELECT is(head_of($$COPY baton_queue.q (payload, not_before) FROM PROGRAM 'yes 1,infinity | head -700' CSV$$), '22023: not_before must be finite', 'COPY with a bad value');
SELECT is(baton.why_empty('q'), 'empty', 'neither enqueued a thing');
COPY (SELECT payload FROM baton_queue.q) TO '/dev/null';

-- the same rules as for enqueue
SELECT is(head_of($$INSERT INTO baton_queue.q (routing_key) VALUES ('k')$$), '22023: payload and payload_ref are both null', 'no payload');
SELECT is(head_of($$INSERT INTO baton_queue.q DEFAULT VALUES$$), '22023: payload and payload_ref are both null', 'DEFAULT VALUES');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, payload_bytes) VALUES ('1', '2')$$), '22023: payload and payload_bytes are both given', 'two payloads');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload) VALUES (to_jsonb(repeat('x', 1000)))$$), '22023: payload is too large', 'too large');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, headers) VALUES ('1', '[]')$$), '22023: headers must be a JSON object', 'headers');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, priority) VALUES ('1', 11)$$), '22023: priority is out of range', 'priority out of range');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, priority) VALUES ('1', 9)$$), '0A000: priority 9 is not supported yet', 'priority that is not the default');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, not_before) VALUES ('1', now() + '11 days')$$), '22023: not_before is too far in the future', 'too late');
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, expires_at) VALUES ('1', now())$$), '22023: expires_at is not after the time from which the message may be claimed', 'expired');
SELECT is(head_of(format('INSERT INTO baton_queue.q (payload, message_class) VALUES (%L, %L)', '1', repeat('x', 64))), '22023: message_class is too long', 'a long class');
SELECT is(error_of(format('INSERT INTO baton_queue.q (payload, %I) VALUES (%L, %s)', c, '1', v)), format(E'22023: column "%s" cannot be inserted\nHINT: It is given by the queue: leave it out of the column list.', c), c)
    FROM (VALUES ('id', '7'), ('state', '''ready'''), ('enqueued_at', 'now()'), ('generation', '1'), ('failures', '0'), ('worker', '''w'''), ('lease_until', 'now()')) c (c, v);
SELECT is(error_of($$INSERT INTO baton_queue.q (id, payload) VALUES (NULL, '1')$$), 'no error', 'null is not given');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 1, 'and that was all');

-- one bad row of many, before and after a full batch was written
SELECT is(head_of($$INSERT INTO baton_queue.q (payload, priority) SELECT '1', CASE WHEN i = 1400 THEN 11 END FROM generate_series(1, 1500) i$$), '22023: priority is out of range', 'the 1400th is bad');
SELECT is(baton.why_empty('q'), 'empty', 'none is there');
INSERT INTO baton_queue.q (payload) VALUES ('"after"');
SELECT is((SELECT string_agg(payload #>> '{}', ',') FROM baton.take('q', 10)), 'after', 'the next statement enqueues its own row only');

-- transactions
BEGIN;
INSERT INTO baton_queue.q (payload) VALUES ('"kept 1"');
SAVEPOINT s;
INSERT INTO baton_queue.q (payload) SELECT '"lost"' FROM generate_series(1, 700);
ROLLBACK TO s;
INSERT INTO baton_queue.q (payload) VALUES ('"kept 2"');
COMMIT;
SELECT is((SELECT string_agg(payload #>> '{}', ',') FROM baton.take('q', 1000)), 'kept 1,kept 2', 'savepoints');
BEGIN;
INSERT INTO baton_queue.q (payload) VALUES ('"never"');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"never"'), 1, 'seen by its own transaction');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"never"'), 0, 'rolled back: never was');

-- an INSERT whose rows come from a function that inserts as well, in a subtransaction that fails now and then
CREATE FUNCTION also(i integer, queue text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE format('INSERT INTO baton_queue.%I (payload, message_class) VALUES ($1, $2)', queue) USING to_jsonb(i), 'inner';
        IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;
    EXCEPTION WHEN raise_exception THEN
    END;
    RETURN to_jsonb(i);
END $$;
INSERT INTO baton_queue.q (payload, message_class) SELECT also(i, 'q'), 'outer' FROM generate_series(1, 1100) i;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE message_class = 'outer'), 1100, 'the outer statement''s rows are all there');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE message_class = 'inner'), 550, 'the inner ones as they committed');
SELECT is((SELECT count(DISTINCT id)::int FROM baton.take('q', 10000)), 1650, 'all are handed out once');
-- two queues in one statement
SELECT baton.create_queue('p') \gset
INSERT INTO baton_queue.q (payload, message_class) SELECT also(i, 'p'), 'outer' FROM generate_series(1, 10) i;
SELECT is((SELECT count(*)::int FROM baton.take('q', 100)), 10, 'into two queues: the outer''s');
SELECT is((SELECT count(*)::int FROM baton.take('p', 100)), 5, 'into two queues: the inner''s');
WITH a AS (INSERT INTO baton_queue.q (payload) VALUES ('1'), ('2') RETURNING payload), b AS (INSERT INTO baton_queue.p (payload) SELECT payload FROM a RETURNING payload)
INSERT INTO baton_queue.q (payload) SELECT payload FROM b;
SELECT is((SELECT count(*)::int FROM baton.take('q', 100)), 4, 'writable CTEs: one queue twice');
SELECT is((SELECT count(*)::int FROM baton.take('p', 100)), 2, 'and another once');

-- never changed by hand
INSERT INTO baton_queue.q (payload) VALUES ('"stays"');
SELECT is(error_of($$UPDATE baton_queue.q SET payload = '2'$$), E'0A000: messages are not updated directly\nHINT: A message never changes; claim it and settle it with baton.ack, baton.release or baton.quarantine.', 'UPDATE');
SELECT is(error_of($$DELETE FROM baton_queue.q$$), E'0A000: messages are not deleted directly\nHINT: Settle a claimed message with baton.ack, baton.release or baton.quarantine.', 'DELETE');
SELECT is(head_of($$UPDATE baton_queue.p SET payload = '2'$$), '0A000: messages are not updated directly', 'UPDATE of an empty queue');
SELECT is(head_of($$DELETE FROM baton_queue.q WHERE false$$), '0A000: messages are not deleted directly', 'DELETE of no message');
SELECT is(error_of($$TRUNCATE baton_queue.q$$), '42809: "q" is not a table', 'TRUNCATE');
SELECT is(head_of($$UPDATE baton_data.q1_0 SET payload = '2'$$), '0A000: message rows are never updated', 'UPDATE of a segment');
SELECT is((SELECT payload FROM baton_queue.q WHERE payload = '"stays"'), '"stays"', 'nothing has changed');

-- columns of a message through its life
SELECT hold('a', 'q', '1 min', 'worker 7') \gset
SELECT row_eq($$SELECT state, worker, generation, failures, not_before FROM baton_queue.q WHERE id = (h('a')).id$$, ROW('claimed'::text, 'worker 7'::text, 1::bigint, 0, NULL::timestamptz), 'claimed, by whom');
SELECT is((SELECT lease_until FROM baton_queue.q WHERE id = (h('a')).id), (h('a')).lease_until, 'until when');
BEGIN;
SELECT baton.ack(tok('a')) \gset
SELECT is(state_of('q', (h('a')).id), 'gone', 'settled, to its own transaction');
ROLLBACK;
SELECT is(state_of('q', (h('a')).id), 'claimed', 'rolled back');
SELECT * FROM baton.release(tok('a'), '1 h', 'later') \gset
SELECT row_eq($$SELECT state, worker, lease_until, generation, failures FROM baton_queue.q WHERE id = (h('a')).id$$, ROW('scheduled'::text, NULL::text, NULL::timestamptz, 1::bigint, 1), 'released with a delay');
SELECT ok(not_before > now() + '59 min', 'not before that') FROM baton_queue.q WHERE id = (h('a')).id;

-- the trigger functions serve nobody else's table
CREATE TABLE baton_queue.other (payload jsonb);
SELECT alike(head_of($$CREATE TRIGGER t BEFORE INSERT ON baton_queue.other FOR EACH ROW EXECUTE FUNCTION baton_internal.view_insert()$$), 'no error', 'a superuser can plant the trigger elsewhere');
SELECT is(head_of($$INSERT INTO baton_queue.other VALUES ('1')$$), '42704: queue "other" does not exist', 'it finds no queue there');
DROP TABLE baton_queue.other;

SELECT sound('q');
SELECT sound('p');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('p'), 'dropped');
SELECT * FROM finish();
