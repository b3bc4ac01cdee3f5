-- claim: what it hands out, its bounds, its filters, where it may be called.
\ir prelude.psql

SELECT plan(91);
SELECT baton.create_queue('q', lease => '1 min', min_lease => '1 s', max_lease => '10 min', max_lifetime => '1 hour') \gset

SELECT is_empty($$SELECT * FROM baton.claim('q')$$, 'nothing in it, nothing out of it');
SELECT put('q', 10) AS first \gset

-- one claim
CREATE TABLE c AS SELECT * FROM baton.claim('q', 'worker 1');
SELECT is((SELECT count(*)::int FROM c), 1, 'one, by default');
SELECT is((SELECT id FROM c), :first, 'the first');
SELECT matches((SELECT token FROM c), '^b1[A-Za-z0-9_-]{84}$', 'a token of 86 characters');
SELECT is((SELECT token::baton.token::text FROM c), (SELECT token FROM c), 'which the domain baton.token accepts');
SELECT is(head_of($$SELECT 'b1nonsense'::baton.token$$), '23514: value for domain baton.token violates check constraint "well_formed"', 'and no nonsense');
SELECT row_eq('SELECT generation, failures, priority FROM c', ROW(1::bigint, 0, 5), 'generation 1, no failures');
SELECT ok(lease_until BETWEEN clock_timestamp() + '50 s' AND clock_timestamp() + '60 s', 'the queue''s lease, from now') FROM c;
SELECT is((SELECT fence & 4294967295 FROM c), 1::bigint, 'the fence number ends in the generation');
SELECT is((SELECT fence >> 32 FROM c), (SELECT epoch FROM baton_internal.map_meta('baton_data.q1_0')), 'and begins with the map''s epoch');
SELECT is(state_of('q', :first), 'claimed', 'the view shows it claimed');
SELECT is((SELECT worker FROM baton_queue.q WHERE id = :first), 'worker 1', 'and by whom');

-- max_items
SELECT results_eq($$SELECT id FROM baton.claim('q', max_items => 3)$$, format('SELECT generate_series(%s, %s)::bigint', :first + 1, :first + 3), 'three, in order, and not the one that is held');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 100)), 6, 'no more than there are');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 100)), 0, 'none is left');
SELECT is((SELECT count(DISTINCT d.token)::int FROM (SELECT token FROM c UNION ALL SELECT token FROM baton.claim('q')) d), 1, 'held messages are not handed out again');
SELECT is(error_of($$SELECT FROM baton.claim('q', max_items => 0)$$), E'22023: max_items is out of range\nDETAIL: It is 0; allowed is 1 to 10000.', 'none');
SELECT is(head_of($$SELECT FROM baton.claim('q', max_items => -1)$$), '22023: max_items is out of range', 'less');
SELECT is(head_of($$SELECT FROM baton.claim('q', max_items => 10001)$$), '22023: max_items is out of range', 'too many');
SELECT is(head_of($$SELECT FROM baton.claim('q', max_items => 2147483647)$$), '22023: max_items is out of range', 'far too many');
SELECT put('q', 10500) AS first \gset
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10000)), 10000, 'the most at once');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => NULL)), 1, 'null is one');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10000)), 499, 'the rest');

-- B1, T52: never more than asked
SELECT put('q', 400) AS first \gset
CREATE TABLE counts AS SELECT i, (SELECT count(*)::int FROM baton.claim('q', 'w' || i)) AS n FROM generate_series(1, 100) i;
SELECT is((SELECT string_agg(DISTINCT n::text, ',') FROM counts), '1', 'claim of one, a hundred times: always one');
INSERT INTO counts SELECT i, (SELECT count(*)::int FROM baton.claim('q', 'w' || i, 3)) FROM generate_series(1001, 1100) i;
SELECT is((SELECT string_agg(DISTINCT n::text, ',') FROM counts WHERE i > 1000), '3', 'claim of three');
SELECT is(baton.why_empty('q'), 'empty', 'and that was all');

-- lease
SELECT put('q', 20) AS first \gset
SELECT ok(lease_until BETWEEN clock_timestamp() + '4 s' AND clock_timestamp() + '5 s', 'a lease of one''s own') FROM baton.claim('q', lease => '5 s');
SELECT is((SELECT count(*)::int FROM baton.claim('q', lease => '1 s')), 1, 'the shortest');
SELECT is((SELECT count(*)::int FROM baton.claim('q', lease => '10 min')), 1, 'the longest');
SELECT is(error_of($$SELECT FROM baton.claim('q', lease => '0.999999 s')$$), E'22023: lease is out of range\nDETAIL: It is 00:00:00.999999; allowed is 00:00:01 to 00:10:00.', 'shorter: refused, not clamped');
SELECT is(error_of($$SELECT FROM baton.claim('q', lease => '10 min 0.000001 s')$$), E'22023: lease is out of range\nDETAIL: It is 00:10:00.000001; allowed is 00:00:01 to 00:10:00.', 'longer: refused, not clamped');
SELECT is(head_of($$SELECT FROM baton.claim('q', lease => '0')$$), '22023: lease is out of range', 'none');
SELECT is(head_of($$SELECT FROM baton.claim('q', lease => '-1 s')$$), '22023: lease is out of range', 'negative');
SELECT is(head_of($$SELECT FROM baton.claim('q', lease => '1 month')$$), '22023: lease must not contain months or years', 'a month');
SELECT is(head_of($$SELECT FROM baton.claim('q', lease => '2147483647 days 2562047788:00:54')$$), '22023: lease is out of range', 'an age');

-- worker
SELECT is(error_of(format('SELECT FROM baton.claim(%L, %L)', 'q', repeat('w', 63))), 'no error', 'a worker''s name of 63 bytes');
SELECT is(error_of(format('SELECT FROM baton.claim(%L, %L)', 'q', repeat('w', 64))), E'22023: worker is too long\nDETAIL: It has 64 bytes; the limit is 63.', 'of 64');
SELECT hold('named', 'q', worker => 'Wörker "7"') \gset
SELECT is((SELECT worker FROM baton.in_flight WHERE id = (h('named')).id), 'Wörker "7"', 'any name');
SELECT hold('unnamed', 'q') \gset
SELECT isnt((SELECT worker FROM baton.in_flight WHERE id = (h('unnamed')).id), NULL, 'without a name there is something to tell sessions apart');
SELECT hold('empty', 'q', worker => '') \gset
SELECT is((SELECT worker FROM baton.in_flight WHERE id = (h('empty')).id), (SELECT worker FROM baton.in_flight WHERE id = (h('unnamed')).id), 'an empty name is none');

-- classes
SELECT baton.create_queue('k') \gset
SELECT FROM baton.enqueue_batch('k', '{1,2,3,4,5,6}', message_classes => '{mail,sms,NULL,mail,Mail,""}');
SELECT results_eq($$SELECT payload::int FROM baton.claim('k', max_items => 10, classes => '{mail}')$$, 'VALUES (1), (4)', 'of one class');
SELECT is_empty($$SELECT payload FROM baton.claim('k', max_items => 10, classes => '{}')$$, 'of no class');
SELECT is_empty($$SELECT payload FROM baton.claim('k', max_items => 10, classes => '{NULL}')$$, 'null is no class');
SELECT is_empty($$SELECT payload FROM baton.claim('k', max_items => 10, classes => '{MAIL}')$$, 'case matters');
SELECT is(baton.why_empty('k'), NULL, 'others are there');
SELECT results_eq($$SELECT count(*)::int FROM baton.claim('k', max_items => 1, classes => '{Mail,sms}') WHERE payload IN ('2', '5')$$, 'VALUES (1)', 'of two classes, one');
SELECT results_eq($$SELECT payload::int FROM baton.claim('k', max_items => 10, classes => '{""}')$$, 'VALUES (6)', 'the empty class is one');
SELECT results_eq($$SELECT count(*)::int, count(message_class)::int FROM baton.claim('k', max_items => 10) WHERE payload IN ('2', '3', '5')$$, 'VALUES (2, 1)', 'any class');
-- a class behind many of another
SELECT FROM baton.enqueue_batch('k', ARRAY(SELECT '"other"'::jsonb FROM generate_series(1, 3000)), message_classes => '{other}');
SELECT FROM baton.enqueue('k', '"wanted"', message_class => 'wanted');
CREATE TABLE wanted AS SELECT i, (SELECT count(*)::int FROM baton.claim('k', 'w' || i, classes => '{wanted}')) AS n FROM generate_series(1, 20) i;
SELECT is((SELECT sum(n)::int FROM wanted), 1, 'a message behind 3000 of another class is found within 20 claims');
SELECT is((SELECT count(*)::int FROM baton.claim('k', max_items => 10000)), 3000, 'those that were passed over are still there');

-- max_bytes: payload and headers
SELECT baton.create_queue('b') \gset
SELECT FROM baton.enqueue_batch_bytes('b', ARRAY[repeat('1', 100), repeat('2', 100), repeat('3', 300), repeat('4', 100)]::bytea[]);
SELECT is((SELECT string_agg(substr(convert_from(payload_bytes, 'UTF8'), 1, 1), ',') FROM baton.claim('b', max_items => 10, max_bytes => 200)), '1,2', '200 bytes: two of 100');
SELECT is_empty($$SELECT * FROM baton.claim('b', max_items => 10, max_bytes => 99)$$, '99 bytes: none fits');
SELECT is((SELECT string_agg(substr(convert_from(payload_bytes, 'UTF8'), 1, 1), ',') FROM baton.claim('b', max_items => 10, max_bytes => 299)), '4', 'what does not fit alone is passed over');
SELECT is((SELECT string_agg(substr(convert_from(payload_bytes, 'UTF8'), 1, 1), ',') FROM baton.claim('b', max_items => 10, max_bytes => 300)), '3', 'the exact size fits');
SELECT FROM baton.enqueue_batch_bytes('b', '{1,2}', headers => ARRAY[format('{"h": "%s"}', repeat('x', 87))::jsonb]);
SELECT is((SELECT count(*)::int FROM baton.claim('b', max_items => 10, max_bytes => 201)), 1, 'headers count (101 bytes with the payload)');
SELECT is((SELECT count(*)::int FROM baton.claim('b', max_items => 10, max_bytes => 2147483647)), 1, 'no limit that matters');
SELECT is(error_of($$SELECT FROM baton.claim('b', max_bytes => 0)$$), E'22023: max_bytes must be positive\nDETAIL: It is 0.', 'no bytes');
SELECT is(head_of($$SELECT FROM baton.claim('b', max_bytes => -5)$$), '22023: max_bytes must be positive', 'negative bytes');
SELECT FROM baton.enqueue_batch('b', ARRAY(SELECT to_jsonb(repeat('x', 5000)) FROM generate_series(1, 40)));
SELECT is((SELECT max(s) <= 50000 AND sum(n) = 40 FROM (SELECT i, sum(pg_column_size(c.payload)) s, count(c.id) n FROM generate_series(1, 10) i, LATERAL (SELECT * FROM baton.claim('b', 'w' || i, 100, max_bytes => 50000)) c GROUP BY i) x), true, 'large payloads in portions');

-- what is large comes out whole, also what was stored compressed and out of line
SELECT baton.create_queue('large', max_payload_bytes => 4000000) \gset
CREATE TABLE blob AS SELECT string_agg(md5(i::text), '')::bytea AS b FROM generate_series(1, 50000) i;
SELECT FROM blob, baton.enqueue_bytes('large', b);
SELECT FROM blob, baton.enqueue('large', jsonb_build_object('s', convert_from(b, 'UTF8'), 'z', repeat('z', 100000)));
SELECT is((SELECT count(*)::int FROM baton.claim('large', max_items => 2) c, blob WHERE c.payload_bytes = b OR (c.payload ->> 's' = convert_from(b, 'UTF8') AND length(c.payload ->> 'z') = 100000)), 2, '1.6 MB come out as they went in');

-- what is not to be handed out
SELECT baton.create_queue('w') \gset
SELECT FROM baton.enqueue('w', '"late"', delay => '1 min');
SELECT is(baton.why_empty('w'), 'empty', 'not due yet');
SELECT is((SELECT count(*)::int FROM baton.claim('w')), 0, 'not due: not handed out');
SET pg_baton.clock_offset = 59000;
SELECT is((SELECT count(*)::int FROM baton.claim('w')), 0, 'never early');
SET pg_baton.clock_offset = 61000;
SELECT is((SELECT payload FROM baton.claim('w')), '"late"', 'due: handed out by the next claim');
RESET pg_baton.clock_offset;
SELECT FROM baton.enqueue('w', '"mortal"', expires_at => clock_timestamp() + '1 min');
SET pg_baton.clock_offset = 58000;
SELECT is(baton.why_empty('w'), NULL, 'not yet expired: there to be claimed');
SET pg_baton.clock_offset = 60000;
SELECT is((SELECT count(*)::int FROM baton.claim('w', max_items => 10) WHERE payload = '"mortal"'), 0, 'expired: never handed out');
SELECT is((SELECT count(*)::int FROM baton_queue.w WHERE payload = '"mortal"'), 0, 'and out of the way');
RESET pg_baton.clock_offset;

-- a row that plain SQL has locked is passed over, not waited for (its lock lives on in a prepared transaction)
SELECT baton.create_queue('locked') \gset
SELECT segment('locked') AS seg, current_database() AS gid \gset
SELECT put('locked', 3) AS first \gset
BEGIN;
SELECT id FROM :seg WHERE id = :first FOR UPDATE \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is((SELECT string_agg(payload ->> 'n', ',') FROM baton.claim('locked', max_items => 10)), '2,3', 'a locked row is passed over');
SELECT is((SELECT obstacle FROM baton.explain_message('locked', :first)), 'locked', 'explain_message says so');
ROLLBACK PREPARED :'gid';
SET pg_baton.clock_offset = 200;
SELECT is((SELECT string_agg(payload ->> 'n', ',') FROM baton.claim('locked', max_items => 10)), '1', 'and handed out when the lock is gone');
RESET pg_baton.clock_offset;

-- a row that plain SQL has deleted
SELECT put('locked', 3) AS first \gset
DELETE FROM :seg WHERE id = :first + 1;
SELECT is((SELECT string_agg(payload ->> 'n', ',') FROM baton.claim('locked', max_items => 10)), '1,3', 'a deleted row is not handed out');
SELECT is(state_of('locked', :first + 1), 'gone', 'and gone');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('locked', :first + 1)), 'settled: purged', 'its slot is settled, so that it holds up nothing');
SELECT put('locked') AS first \gset
BEGIN;
DELETE FROM :seg WHERE id = :first;
SELECT is((SELECT count(*)::int FROM baton.claim('locked')), 0, 'deleted by this very transaction');
ROLLBACK;
SELECT is((SELECT id FROM baton.claim('locked')), :first, 'rolled back: it is there, and no failure was counted');
SELECT is(failures_of('locked', :first), 0, 'none');

-- where it may be called
SELECT is(error_of($$SELECT baton.claim('q')$$), E'0A000: claim must be called in FROM\nHINT: Write SELECT … FROM baton.claim(…).', 'not in a select list');
SELECT is(head_of($$SELECT (baton.claim('q')).id$$), '0A000: claim must be called in FROM', 'nor one of its columns');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.claim('q')$$), '25006: cannot execute claim in a read-only transaction', 'not in a read-only transaction');
ROLLBACK;
SELECT is(error_of($$SELECT FROM baton.claim('q', attempt_id => '00000000-0000-0000-0000-000000000001')$$), E'0A000: attempt_id is not supported yet\nHINT: Leave it out; a claim whose reply was lost ends with its lease.', 'attempt_id');
SELECT is((SELECT provolatile::text || proparallel::text FROM pg_proc WHERE oid = 'baton.claim'::regproc), 'vu', 'volatile, parallel unsafe');
SELECT count(*) FROM baton.claim('q', max_items => 100) \g /dev/null
PREPARE c (text, text, int, interval) AS SELECT count(*)::int FROM baton.claim($1, $2, $3, $4);
SELECT put('q', 2) AS first \gset
SELECT results_eq($$EXECUTE c ('q', NULL, 1, NULL)$$, 'VALUES (1)', 'with parameters');
SELECT results_eq($$EXECUTE c ('q', 'w', 5, '5 s')$$, 'VALUES (1)', 'all of them');
SELECT is((SELECT count(*)::int FROM baton.claim('q') c (a, b)), 0, 'with other column names');

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
