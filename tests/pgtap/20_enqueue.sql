-- enqueue and enqueue_bytes: what is stored, every limit, refusals before any write.
\ir prelude.psql

SELECT plan(108);
SELECT baton.create_queue('q', max_payload_bytes => 100, max_headers_bytes => 60, max_delay => '10 days') \gset

-- what comes back, and what a claim hands out
SELECT row_eq($$SELECT state FROM baton.enqueue('q', '{"a": [1, "ü", null]}')$$, ROW('ready'::text), 'state ready');
SELECT ok(count(*) = 1 AND min(id) > 0, 'one row with the id') FROM baton.enqueue('q', '1');
CREATE TABLE sent AS SELECT * FROM baton.enqueue('q', '{"b": 2}', 'm-1', 'customer-7', 'mail', 5, '{"traceparent": "00-ab"}', NULL, NULL, clock_timestamp() + '1 day', 's3://x/y');
CREATE TABLE got AS SELECT * FROM baton.claim('q', 'w1', 10) WHERE id = (SELECT id FROM sent);
SELECT is((SELECT count(*)::int FROM got), 1, 'claimed');
SELECT row_eq($$SELECT message_id, routing_key, message_class, priority, generation, failures, headers, payload, payload_bytes, payload_ref FROM got$$,
              ROW('m-1'::text, 'customer-7'::text, 'mail'::text, 5, 1::bigint, 0, '{"traceparent": "00-ab"}'::jsonb, '{"b": 2}'::jsonb, NULL::bytea, 's3://x/y'::text), 'the envelope comes out as it went in');
SELECT ok(enqueued_at BETWEEN clock_timestamp() - '1 min'::interval AND clock_timestamp(), 'enqueued_at is the clock') FROM got;
SELECT ok(expires_at - enqueued_at BETWEEN '23:59:59' AND '24:00:01', 'expires_at is kept') FROM got;
SELECT is((SELECT count(*)::int FROM baton.settle(ARRAY(SELECT token FROM got), '{ack}')), 1, 'settled');

-- ids grow, and are never used twice
SELECT ok((SELECT id FROM baton.enqueue('q', '1')) < (SELECT id FROM baton.enqueue('q', '1')), 'ids grow');
SELECT nextval('baton_data.q1_id') AS last_id \gset
BEGIN;
SELECT id AS lost_id FROM baton.enqueue('q', '"rolled back"') \gset
ROLLBACK;
SELECT ok((SELECT id FROM baton.enqueue('q', '1')) > :lost_id, 'the id of a rolled back message is not used again');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"rolled back"'), 0, 'a rolled back enqueue never was');

-- bytes
SELECT row_eq($$SELECT state FROM baton.enqueue_bytes('q', '\x00ff80', routing_key => 'b')$$, ROW('ready'::text), 'bytes');
SELECT is((SELECT payload_bytes FROM baton_queue.q WHERE routing_key = 'b'), '\x00ff80'::bytea, 'with a zero byte');
SELECT is((SELECT payload FROM baton_queue.q WHERE routing_key = 'b'), NULL, 'and no JSON');
SELECT lives_ok($$SELECT FROM baton.enqueue_bytes('q', '')$$, 'zero bytes are a payload');

-- a payload there must be, or the address of one
SELECT is(error_of($$SELECT FROM baton.enqueue('q')$$), E'22023: payload and payload_ref are both null\nHINT: Pass a payload (for an empty one: ''{}'' or ''null''), or the address of one.', 'nothing to enqueue');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', NULL)$$), '22023: payload and payload_ref are both null', 'null is nothing');
SELECT is(head_of($$SELECT FROM baton.enqueue_bytes('q', NULL)$$), '22023: payload and payload_ref are both null', 'nor for bytes');
SELECT lives_ok($$SELECT FROM baton.enqueue('q', 'null')$$, 'JSON null is a payload');
SELECT lives_ok($$SELECT FROM baton.enqueue('q', payload_ref => 'file:///x')$$, 'a reference alone');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload_ref = 'file:///x' AND payload IS NULL AND payload_bytes IS NULL), 1, 'is stored as that');

-- sizes: the largest that is accepted, and one byte more
SELECT is(error_of(format('SELECT FROM baton.enqueue_bytes(%L, %L)', 'q', repeat('x', 100))), 'no error', '100 bytes of payload');
SELECT is(error_of(format('SELECT FROM baton.enqueue_bytes(%L, %L)', 'q', repeat('x', 101))),
          E'22023: payload is too large\nDETAIL: It has 101 bytes; the limit of the queue is 100.\nHINT: Store large content elsewhere and pass its address as payload_ref.', '101 bytes');
-- a JSON string of n characters is stored in 8 + n bytes, {"a": "…"} in 13 + n
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L)', 'q', to_jsonb(repeat('x', 92)))), 'no error', '100 bytes of JSON, as it is stored');
SELECT is(split_part(error_of(format('SELECT FROM baton.enqueue(%L, %L)', 'q', to_jsonb(repeat('x', 93)))), E'\nHINT', 1), E'22023: payload is too large\nDETAIL: It has 101 bytes; the limit of the queue is 100.', '101 bytes of JSON');
SELECT is(head_of(format('SELECT FROM baton.enqueue(%L, %L)', 'q', to_jsonb(repeat('x', 1000000)))), '22023: payload is too large', 'compression is no way around it');
CREATE TABLE large AS SELECT repeat('x', 1000000)::bytea AS b;
SELECT is(head_of($$SELECT FROM large, baton.enqueue_bytes('q', b)$$), '22023: payload is too large', 'nor is a compressed column');
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, headers => %L)', 'q', '1', format('{"a":"%s"}', repeat('x', 47)))), 'no error', '60 bytes of headers');
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, headers => %L)', 'q', '1', format('{"a":"%s"}', repeat('x', 48)))),
          E'22023: headers is too large\nDETAIL: It has 61 bytes; the limit of the queue is 60.\nHINT: Store large content elsewhere and pass its address as payload_ref.', '61 bytes of headers');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', headers => '[1]')$$), '22023: headers must be a JSON object', 'an array is no headers');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', headers => '"a"')$$), '22023: headers must be a JSON object', 'nor a string');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', headers => 'null')$$), '22023: headers must be a JSON object', 'nor null');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', headers => '{}')$$), 'no error', 'an empty object is');

CREATE TABLE texts (field text, bytes integer);
INSERT INTO texts VALUES ('message_id', 255), ('routing_key', 255), ('message_class', 63), ('payload_ref', 2048);
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, %I => %L)', 'q', '1', field, repeat('x', bytes))), 'no error', format('%s of %s bytes', field, bytes)) FROM texts;
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, %I => %L)', 'q', '1', field, repeat('x', bytes + 1))), format(E'22023: %s is too long\nDETAIL: It has %s bytes; the limit is %s.', field, bytes + 1, bytes), 'and one more') FROM texts;
SELECT is(head_of(format('SELECT FROM baton.enqueue(%L, %L, %I => %L)', 'q', '1', field, repeat('ü', bytes / 2 + 1))), format('22023: %s is too long', field), 'bytes, not characters') FROM texts;
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, %I => %L)', 'q', '1', field, '')), 'no error', 'an empty ' || field) FROM texts;

-- JSON that PostgreSQL refuses, before any write
SELECT is(head_of($q$SELECT FROM baton.enqueue('q', '{"a": "\u0000"}')$q$), '22P05: unsupported Unicode escape sequence', 'NUL in JSON');
SELECT is(head_of($q$SELECT FROM baton.enqueue('q', '{"a": ')$q$), '22P02: invalid input syntax for type json', 'half a JSON');
SELECT is(head_of($q$SELECT FROM baton.enqueue('q', '{"a": "\ud83d"}')$q$), '22P02: invalid input syntax for type json', 'half a surrogate pair');

-- priority: only the default until there are bands
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', priority => 5)$$), 'no error', 'the default priority');
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, priority => %s)', 'q', '1', p)), format(E'0A000: priority %s is not supported yet\nDETAIL: Only the default priority, 5, is.', p), 'priority ' || p)
    FROM unnest('{1,4,6,10}'::int[]) p;
SELECT is(error_of(format('SELECT FROM baton.enqueue(%L, %L, priority => %s)', 'q', '1', p)), format(E'22023: priority is out of range\nDETAIL: It is %s; allowed is 1 to 10.', p), 'priority ' || p)
    FROM unnest('{0,11,-1,2147483647,-2147483648}'::int[]) p;

-- delay
SELECT is((SELECT state FROM baton.enqueue('q', '1', delay => '0')), 'ready', 'no delay is now');
SELECT is((SELECT state FROM baton.enqueue('q', '1', delay => '0.000001 s', routing_key => 'soon')), 'scheduled', 'a microsecond is a delay');
SELECT is((SELECT state FROM baton.enqueue('q', '1', delay => '1 min', routing_key => 'minute')), 'scheduled', 'a minute');
SELECT ok(not_before BETWEEN clock_timestamp() + '50 s' AND clock_timestamp() + '60 s', 'counts from the clock') FROM baton_queue.q WHERE routing_key = 'minute';
SELECT is((SELECT state FROM baton.enqueue('q', '1', delay => '10 days')), 'scheduled', 'the longest delay');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', delay => '10 days 0.000001 s')$$), E'22023: delay is out of range\nDETAIL: It is 10 days 00:00:00.000001; allowed is 00:00:00 to 240:00:00.', 'a microsecond more');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '-0.000001 s')$$), '22023: delay is out of range', 'negative: refused, not clamped');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '-1 day')$$), '22023: delay is out of range', 'a day ago');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', delay => '1 month')$$), E'22023: delay must not contain months or years\nHINT: Their length varies; say it in days.', 'a month');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '1 mon -30 days')$$), '22023: delay must not contain months or years', 'a month less 30 days');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '2147483647 days')$$), '22023: delay is out of range', 'the longest interval of days');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '2147483647 days 2562047788:00:54.775807')$$), '22023: delay is out of range', 'days and hours');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '-2147483648 days -2562047788:00:54.775807')$$), '22023: delay is out of range', 'and the shortest');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', delay => '11 days -48 hours')$$), 'no error', 'parts are added up');

-- not_before
SELECT is((SELECT state FROM baton.enqueue('q', '1', not_before => clock_timestamp() + '1 min')), 'scheduled', 'in a minute');
SELECT is((SELECT state FROM baton.enqueue('q', '1', not_before => clock_timestamp() - '1 min'::interval)), 'ready', 'the past is now');
SELECT is((SELECT state FROM baton.enqueue('q', '1', not_before => '1970-01-01')), 'ready', 'however long ago');
SELECT is((SELECT state FROM baton.enqueue('q', '1', not_before => '4713-01-01 BC')), 'ready', 'however long');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', not_before => 'infinity')$$), '22023: not_before must be finite', 'infinity');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', not_before => '-infinity')$$), '22023: not_before must be finite', '-infinity');
SELECT is((SELECT state FROM baton.enqueue('q', '1', not_before => clock_timestamp() + '10 days' - '1 s'::interval)), 'scheduled', 'just within max_delay');
SELECT alike(error_of($$SELECT FROM baton.enqueue('q', '1', not_before => clock_timestamp() + '10 days 1 s')$$), E'22023: not_before is too far in the future\nDETAIL: It is %; the queue''s max_delay allows up to %.', 'just beyond');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', not_before => '294276-12-31 23:59:59.999999+00')$$), '22023: not_before is too far in the future', 'the end of time');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', delay => '1 s', not_before => clock_timestamp())$$), E'22023: delay and not_before are both given\nHINT: Pass one of them.', 'both');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '0', not_before => '1970-01-01')$$), '22023: delay and not_before are both given', 'both, though neither delays');

-- expires_at
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', expires_at => clock_timestamp() + '1 s')$$), 'no error', 'expires in a second');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', expires_at => '294276-12-31 23:59:59.999999+00')$$), 'no error', 'at the end of time');
SELECT alike(error_of($$SELECT FROM baton.enqueue('q', '1', expires_at => clock_timestamp())$$), E'22023: expires_at is not after the time from which the message may be claimed\nDETAIL: It is %; the message may be claimed from %.', 'expired already');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', expires_at => '1970-01-01')$$), '22023: expires_at is not after the time from which the message may be claimed', 'long ago');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', expires_at => 'infinity')$$), '22023: expires_at must be finite', 'infinity');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', expires_at => '-infinity')$$), '22023: expires_at must be finite', '-infinity');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', delay => '1 min', expires_at => clock_timestamp() + '59 s')$$), '22023: expires_at is not after the time from which the message may be claimed', 'expired before it is due');
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1', not_before => now() + '1 min', expires_at => now() + '1 min')$$), '22023: expires_at is not after the time from which the message may be claimed', 'expired when it is due');
SELECT is(error_of($$SELECT FROM baton.enqueue('q', '1', not_before => now() + '1 min', expires_at => now() + '1 min 0.000001 s')$$), 'no error', 'a microsecond later');

-- T34: the clock, not the start of the transaction
BEGIN;
SELECT pg_sleep(0.2) \g /dev/null
SELECT id AS slow FROM baton.enqueue('q', '1', delay => '1 min') \gset
SELECT ok(enqueued_at > now() + '0.2 s', 'enqueued_at is the clock, not the start of the transaction') FROM baton_queue.q WHERE id = :slow;
SELECT is((SELECT state FROM baton_queue.q WHERE id = :slow), 'scheduled', 'a transaction sees what it enqueues');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10000) WHERE id = :slow), 0, 'and does not claim it');
ROLLBACK;

-- where it may be called
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.enqueue('q', '1')$$), '25006: cannot execute enqueue in a read-only transaction', 'read only');
ROLLBACK;
SELECT matches((SELECT baton.enqueue('q', '1'))::text, '^\(\d+,ready\)$', 'in a select list');
SELECT is((SELECT count(*)::int FROM generate_series(1, 5) i, baton.enqueue('q', to_jsonb(i), message_class => 'lateral')), 5, 'once for each row of another table');
SELECT results_eq($$SELECT payload::int FROM baton_queue.q WHERE message_class = 'lateral' ORDER BY id$$, 'SELECT generate_series(1, 5)', 'in their order');
DO $$ BEGIN PERFORM FROM baton.enqueue('q', '"plpgsql"'); END $$;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"plpgsql"'), 1, 'PERFORM FROM in PL/pgSQL');
PREPARE e (text, jsonb, interval) AS SELECT state FROM baton.enqueue($1, $2, delay => $3);
SELECT results_eq($$EXECUTE e ('q', '1', NULL)$$, $$VALUES ('ready')$$, 'prepared');

-- savepoints
BEGIN;
SELECT FROM baton.enqueue('q', '"kept 1"');
SAVEPOINT a;
SELECT FROM baton.enqueue('q', '"lost"');
ROLLBACK TO a;
SELECT FROM baton.enqueue('q', '"kept 2"');
COMMIT;
SELECT results_eq($$SELECT payload #>> '{}' FROM baton_queue.q WHERE payload #>> '{}' ~ 'kept|lost' ORDER BY id$$, $$VALUES ('kept 1'), ('kept 2')$$, 'a savepoint that is rolled back takes its messages along');

-- what was refused left nothing
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"lost"'), 0, 'not even its row');
SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
