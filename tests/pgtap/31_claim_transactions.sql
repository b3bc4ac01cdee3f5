-- A claim and the transaction around it: what it sees, what it leaves, what a rollback makes of it.
\ir prelude.psql

SELECT plan(64);
SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 5) \gset
SELECT segment('q') AS seg \gset

-- acts at once: no transaction id, no row version, no lock on the row
SELECT put('q', 5) AS first \gset
CREATE TABLE rows_before AS SELECT id, xmin::text AS made_by, xmax::text AS ended_by, ctid::text AS place FROM :seg;
CREATE FUNCTION changes() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_xact_all_tables WHERE schemaname ~ '^baton' $$;
BEGIN;
SELECT changes() AS before \gset
SELECT token AS t FROM baton.claim('q') \gset
SELECT pg_current_xact_id_if_assigned() IS NULL AS claim_takes_none \gset
SELECT baton.extend(:'t', '1 min') \g /dev/null
SELECT outcome FROM baton.hand_back(ARRAY[:'t']) \gset
SELECT token AS t FROM baton.claim('q') \gset
SELECT baton.start(:'t') \g /dev/null
SELECT baton.why_empty('q') IS NULL AS not_empty \gset
SELECT pg_current_xact_id_if_assigned() IS NULL AS others_take_none, changes() AS after \gset
COMMIT;
SELECT ok(:'claim_takes_none', 'a claim takes no transaction id');
SELECT is(:'outcome'::text, 'handed_back'::text, 'extend, hand_back, start');
SELECT ok(:'not_empty', 'why_empty');
SELECT ok(:'others_take_none', 'take none either');
SELECT is(:after, :before, 'and no row is changed');
SELECT bag_eq(format('SELECT id, xmin::text AS made_by, xmax::text AS ended_by, ctid::text AS place FROM %s', :'seg'), 'SELECT * FROM rows_before', 'the rows are as they were');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 4, 'all but the claimed one are there');

-- own enqueues
BEGIN;
SELECT put('q', 2) AS first \gset
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'not handed out to the transaction that enqueues');
SELECT is(baton.why_empty('q'), 'empty', 'to it the queue is empty');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', :first)), 'uncommitted: enqueued by this transaction', 'explain_message says why');
COMMIT;
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 2, 'handed out when it has committed');
BEGIN;
SELECT put('q', 2) AS first \gset
SAVEPOINT s;
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
ROLLBACK TO s;
COMMIT;
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 2, 'also when a claim has walked over them');

-- a claim that is rolled back is void: back after the backoff, with a failure
SELECT put('q') AS first \gset
BEGIN;
SELECT hold('void', 'q') AS held \gset
SELECT token AS t FROM held, LATERAL (SELECT (held.d).*) d WHERE name = 'void' \gset
SELECT is(:held, :first, 'claimed');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'rolled back: not at once');
SELECT is(baton.why_empty('q'), 'empty', 'nothing to claim now');
SELECT row_eq(format('SELECT state, failures, generation FROM baton_queue.q WHERE id = %s', :first), ROW('scheduled'::text, 1, 1::bigint), 'it waits, a failure is counted, the generation stays');
SELECT ok(not_before BETWEEN clock_timestamp() + '8 s' AND clock_timestamp() + '11 s', 'for the queue''s backoff') FROM baton_queue.q WHERE id = :first;
SELECT is(split_part(error_of(format('SELECT baton.ack(%L)', :'t')), E'\nHINT', 1),
          format(E'QB002: ack refused: the lease ended before the verb was called\nDETAIL: message %s of queue "q": lease_expired: the transaction that claimed the message was rolled back.', :first), 'its token is worth nothing');
SET pg_baton.clock_offset = 11000;
SELECT row_eq($$SELECT generation, failures FROM baton.claim('q')$$, ROW(2::bigint, 1), 'after the backoff it is handed out, with the next generation');
RESET pg_baton.clock_offset;
SELECT is(head_of(format('SELECT baton.ack(%L)', :'t')), 'QB001: ack refused: the message has been claimed again since; another claim holds it', 'and the first token is another claim''s');
SELECT baton.fence('q') \g /dev/null
SELECT count(*) FROM baton.take('q', 10) \g /dev/null

-- T73: the same with a savepoint
SELECT put('q') AS first \gset
BEGIN;
SAVEPOINT s;
SELECT token AS t1, generation AS g1, fence AS f1 FROM baton.claim('q') \gset
ROLLBACK TO s;
SET pg_baton.clock_offset = 11000;
SELECT count(*) FROM baton.claim('q') \g /dev/null
SET pg_baton.clock_offset = 22000;
SELECT token AS t2, generation AS g2, fence AS f2 FROM baton.claim('q') \gset
SELECT cmp_ok(:g2, '>', :g1, 'claimed again in the same transaction: the generation is not used twice');
SELECT cmp_ok(:f2, '>', :f1, 'nor is the fence number');
SELECT is(head_of(format('SELECT baton.ack(%L)', :'t1')), 'QB001: ack refused: the message has been claimed again since; another claim holds it', 'the first token never matches');
SELECT is(baton.ack(:'t2'), 'acked', 'the second does');
COMMIT;
RESET pg_baton.clock_offset;
SELECT is(state_of('q', :first), 'gone', 'and commits');

-- released savepoints keep their claims
SELECT put('q', 3) AS first \gset
BEGIN;
SAVEPOINT a;
SELECT token AS t1 FROM baton.claim('q') \gset
SAVEPOINT b;
SELECT token AS t2 FROM baton.claim('q') \gset
RELEASE b;
RELEASE a;
SAVEPOINT c;
SELECT token AS t3 FROM baton.claim('q') \gset
ROLLBACK TO c;
COMMIT;
SELECT count(*) FROM baton.claim('q') \g /dev/null
SELECT results_eq(format('SELECT outcome FROM baton.settle(ARRAY[%L, %L, %L], %L)', :'t1', :'t2', :'t3', '{ack}'), $$VALUES ('acked'), ('acked'), ('lease_expired')$$, 'what was released holds, what was rolled back is void');
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 1, 'and comes back');
RESET pg_baton.clock_offset;

-- nested: released into a parent that is rolled back
SELECT put('q') AS first \gset
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT token AS t1 FROM baton.claim('q') \gset
RELEASE b;
ROLLBACK TO a;
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'void with its parent');
COMMIT;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[:'t1'], '{ack}')), 'lease_expired', 'its token too');
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT failures FROM baton.take('q', 10)), 1, 'a failure, once');
RESET pg_baton.clock_offset;

-- an error after the claim, caught in PL/pgSQL
SELECT put('q') AS first \gset
CREATE FUNCTION poison(queue text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t text;
BEGIN
    SELECT token INTO t FROM baton.claim(queue);
    PERFORM 1 / 0;
    RETURN t;
EXCEPTION WHEN division_by_zero THEN
    RETURN t;
END $$;
SELECT poison('q') AS t1 \gset
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'a handler that fails does not spin on its message');
SELECT is(failures_of('q', :first), 1, 'it counts as a failure');

-- the last attempt, rolled back: quarantined
SELECT count(*) FROM baton.take('q', 10) \g /dev/null
SET pg_baton.clock_offset = 11000;
SELECT count(*) FROM baton.take('q', 10) \g /dev/null
RESET pg_baton.clock_offset;
SELECT baton.create_queue('once', max_attempts => 1) \gset
SELECT put('once') AS first \gset
BEGIN;
SELECT count(*) FROM baton.claim('once') \g /dev/null
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.claim('once')), 0, 'one attempt, rolled back');
SELECT row_eq($$SELECT cause, generation, failures FROM baton.quarantined('once')$$, ROW('max_attempts'::text, 1::bigint, 1), 'quarantined');

-- a claim that fails inside the verb itself is free: here its set-aside is refused by a check of the table
SELECT put('q', 2) AS first \gset
BEGIN;
SELECT is(head_of($$SELECT FROM baton.claim('q', max_items => 2, lease => '1 year')$$), '22023: lease must not contain months or years', 'a bad argument');
COMMIT;
SELECT is((SELECT string_agg(failures::text, ',') FROM baton.take('q', 10)), '0,0', 'counts nothing');

-- setting aside what is expired, rolled back
SELECT FROM baton.enqueue('q', '"mortal"', expires_at => clock_timestamp() + '1 min');
BEGIN;
SET LOCAL pg_baton.clock_offset = 70000;
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'expired');
ROLLBACK;
SELECT row_eq($$SELECT payload, failures FROM baton.claim('q')$$, ROW('"mortal"'::jsonb, 0), 'by the real clock it is not, and was never failed');
SELECT baton.fence('q') \g /dev/null
SELECT count(*) FROM baton.take('q', 10) \g /dev/null

-- REPEATABLE READ and SERIALIZABLE: what the snapshot does not see is not handed out, and not lost
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 \g /dev/null
\set other `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SELECT id FROM baton.enqueue('q', '1')"`
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'REPEATABLE READ: a later message could not be joined with its business row');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'nor is it seen');
COMMIT;
SELECT is((SELECT id FROM baton.take('q')), :other, 'handed out to the next');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT 1 \g /dev/null
\set other `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SELECT id FROM baton.enqueue('q', '1')"`
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'SERIALIZABLE: the same');
COMMIT;
SELECT is((SELECT id FROM baton.take('q')), :other, 'handed out to the next');
SELECT put('q', 2) AS first \gset
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT token AS t FROM baton.claim('q') \gset
SELECT is(baton.ack(:'t'), 'acked', 'REPEATABLE READ: claim and ack what is in the snapshot');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT token AS t FROM baton.claim('q') \gset
SELECT is(baton.ack(:'t'), 'acked', 'SERIALIZABLE: too');
COMMIT;
SELECT is(baton.backlog('q')::int, 0, 'both are settled');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT put('q') AS first \gset
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'own enqueue');
COMMIT;
SELECT is((SELECT id FROM baton.take('q')), :first, 'later');

-- T34, T65: the lease counts from the claim, not from the start of its transaction
SELECT put('q') AS first \gset
BEGIN;
SELECT pg_sleep(0.3) \g /dev/null
SELECT lease_until AS until, token AS t FROM baton.claim('q', lease => '3 s') \gset
SELECT ok(:'until'::timestamptz >= now() + '3.3 s', 'in a transaction that is old already the lease is whole');
SET LOCAL pg_baton.clock_offset = 2500;
SELECT is(baton.ack(:'t'), 'acked', 'acknowledged before its end');
SET LOCAL pg_baton.clock_offset = 60000;
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'nobody gets it while that is open');
COMMIT;
SELECT is(state_of('q', :first), 'gone', 'committed after the end of the lease, and valid');

-- an ack that is rolled back: claimed as before
SELECT put('q') AS first \gset
SELECT hold('a', 'q') \gset
BEGIN;
SELECT is(baton.ack(tok('a')), 'acked', 'acked');
ROLLBACK;
SELECT is(state_of('q', :first), 'claimed', 'rolled back: claimed');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'by the same');
BEGIN;
SAVEPOINT s;
SELECT is(baton.ack(tok('a')), 'acked', 'acked in a savepoint');
ROLLBACK TO s;
SELECT is((SELECT state FROM baton.release(tok('a'), '0')), 'ready', 'rolled back and released instead');
COMMIT;
SELECT is(failures_of('q', :first), 1, 'the release counts');
SELECT hold('b', 'q') \gset
BEGIN;
SELECT baton.ack(tok('b')) \g /dev/null
ROLLBACK;
SET pg_baton.clock_offset = 40000;
SELECT row_eq($$SELECT generation, failures FROM baton.claim('q')$$, ROW(3::bigint, 2), 'rolled back and not settled again: handed out when the lease has ended');
RESET pg_baton.clock_offset;

-- a claim may not be prepared
SELECT put('q') AS first \gset
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c BEGIN -c "SELECT FROM baton.claim('q')" -c "PREPARE TRANSACTION '$PGTAP_DATABASE'" 2>&1`
SELECT alike(:'answer'::text, '%ERROR:  0A000%', 'PREPARE TRANSACTION after a claim is refused');
SELECT is((SELECT count(*)::int FROM pg_prepared_xacts WHERE gid = current_database()), 0, 'nothing is prepared');

SELECT sound('q');
SELECT sound('once');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('once', discard => true), 'dropped');
SELECT * FROM finish();
