-- take: claim and settle in the caller's transaction. Commit is done, rollback is back and counted.
\ir prelude.psql

SELECT plan(43);
SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 3) \gset
SELECT segment('q') AS seg \gset

SELECT is_empty($$SELECT * FROM baton.take('q')$$, 'nothing to take');
SELECT FROM baton.enqueue('q', '{"a": 1}', 'm', 'k', 'c', 5, '{"h": 2}', expires_at => now() + '1 day', payload_ref => 'r');
CREATE TABLE t AS SELECT * FROM baton.take('q');
SELECT row_eq($$SELECT message_id, routing_key, message_class, priority, headers, payload, payload_bytes, payload_ref, generation, failures FROM t$$,
              ROW('m'::text, 'k'::text, 'c'::text, 5, '{"h": 2}'::jsonb, '{"a": 1}'::jsonb, NULL::bytea, 'r'::text, 1, 0), 'the message as it was enqueued');
SELECT ok(expires_at > now() AND enqueued_at <= now() AND id > 0, 'with its times and id') FROM t;
SELECT is(state_of('q', (SELECT id FROM t)), 'gone', 'committed: done');
SELECT is((SELECT count(*)::int FROM ONLY :seg), 0, 'its row is deleted');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', (SELECT id FROM t))), 'settled: acknowledged', 'acknowledged');

-- bounds and filters, as for claim
SELECT put('q', 5) AS first \gset
SELECT results_eq($$SELECT id FROM baton.take('q', 2)$$, format('VALUES (%s::bigint), (%s)', :first, :first + 1), 'two, in order');
SELECT is((SELECT count(*)::int FROM baton.take('q', max_items => 100)), 3, 'no more than there are');
SELECT is(head_of($$SELECT FROM baton.take('q', 0)$$), '22023: max_items is out of range', 'none');
SELECT is(head_of($$SELECT FROM baton.take('q', 10001)$$), '22023: max_items is out of range', 'too many');
SELECT is(head_of($$SELECT FROM baton.take('q', max_bytes => 0)$$), '22023: max_bytes must be positive', 'no bytes');
SELECT is(head_of(format('SELECT FROM baton.take(%L, worker => %L)', 'q', repeat('w', 64))), '22023: worker is too long', 'a long worker');
SELECT FROM baton.enqueue_batch('q', '{1,2,3}', message_classes => '{a,b,a}');
SELECT results_eq($$SELECT payload::int FROM baton.take('q', 10, classes => '{b}')$$, 'VALUES (2)', 'by class');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10, max_bytes => 25)), 1, 'by size');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 1, 'the rest');
SELECT is(error_of($$SELECT baton.take('q')$$), E'0A000: take must be called in FROM\nHINT: Write SELECT … FROM baton.take(…).', 'not in a select list');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.take('q')$$), '25006: cannot execute take in a read-only transaction', 'not in a read-only transaction');
ROLLBACK;

-- rolled back
SELECT put('q', 2) AS first \gset
BEGIN;
SELECT is((SELECT count(*)::int FROM baton.take('q', 2)), 2, 'taken');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'gone, to the transaction');
SELECT is((SELECT count(*)::int FROM baton.take('q', 2)), 0, 'and not handed out twice');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton_queue.q), 2, 'rolled back: there');
SELECT is((SELECT count(*)::int FROM baton.take('q', 2)), 0, 'but not at once');
SELECT is((SELECT string_agg(failures::text, ',') FROM baton_queue.q), '1,1', 'a failure is counted');
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT string_agg(generation || '/' || failures, ',') FROM baton.take('q', 2)), '2/1,2/1', 'after the backoff they are handed out again');
RESET pg_baton.clock_offset;

-- the Nth rollback quarantines
SELECT put('q') AS first \gset
BEGIN; SELECT count(*) FROM baton.take('q') \g /dev/null
ROLLBACK;
SELECT count(*) FROM baton.take('q') \g /dev/null
SET pg_baton.clock_offset = 20000;
BEGIN; SELECT count(*) FROM baton.take('q') \g /dev/null
ROLLBACK;
SET pg_baton.clock_offset = 20000;
SELECT count(*) FROM baton.take('q') \g /dev/null
SET pg_baton.clock_offset = 60000;
BEGIN;
SELECT is((SELECT generation || '/' || failures FROM baton.take('q')), '3/2', 'the third attempt of three');
ROLLBACK;
SET pg_baton.clock_offset = 60000;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 0, 'rolled back');
RESET pg_baton.clock_offset;
SELECT row_eq($$SELECT id, cause, generation, failures FROM baton.quarantined('q')$$, ROW(:first::bigint, 'max_attempts'::text, 3::bigint, 3), 'quarantined at once');

-- savepoints
SELECT put('q', 3) AS first \gset
BEGIN;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'one');
SAVEPOINT s;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'another, in a savepoint');
ROLLBACK TO s;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'a third, after it was rolled back');
COMMIT;
SELECT results_eq($$SELECT (payload ->> 'n')::int, failures FROM baton_queue.q$$, 'VALUES (2, 1)', 'the one of the savepoint is left, with a failure');
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'until its backoff is over');
RESET pg_baton.clock_offset;

-- with a business write: both or none
CREATE TABLE ledger (n integer PRIMARY KEY);
SELECT put('q', 3) AS first \gset
INSERT INTO ledger SELECT (payload ->> 'n')::int FROM baton.take('q', 3);
SELECT is((SELECT string_agg(n::text, ',' ORDER BY n) FROM ledger), '1,2,3', 'one statement takes and writes');
SELECT put('q', 1) AS first \gset
SELECT is(head_of($$INSERT INTO ledger SELECT (payload ->> 'n')::int FROM baton.take('q')$$), '23505: duplicate key value violates unique constraint "ledger_pkey"', 'the effect fails');
SELECT is(state_of('q', :first), 'claimed', 'the message is still there');
SELECT is((SELECT count(*)::int FROM baton.take('q')), 0, 'not handed out at once');
SELECT is(failures_of('q', :first), 1, 'a failure is counted');

-- tokens have no part in it, counters do
SELECT is((SELECT count(*)::int FROM baton.in_flight), 0, 'nothing is in flight');
SELECT ok(c.claimed > 0 AND c.acked > 0, 'the counters count them') FROM baton.queue_counters c WHERE queue = 'q';

-- a large one comes out whole though its row and its chunks are deleted
SELECT baton.create_queue('large', max_payload_bytes => 4000000) \gset
CREATE TABLE blob AS SELECT string_agg(md5(i::text), '')::bytea AS b FROM generate_series(1, 50000) i;
SELECT FROM blob, baton.enqueue_bytes('large', b);
SELECT is((SELECT count(*)::int FROM baton.take('large') t, blob WHERE t.payload_bytes = b), 1, '1.6 MB');

SELECT sound('q');
SELECT sound('large');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('large'), 'dropped');
SELECT * FROM finish();
