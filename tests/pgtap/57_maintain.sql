-- maintain: the workers' steps by hand.
\ir prelude.psql

SELECT plan(28);
SELECT baton.create_queue('q', max_attempts => 2, backoff => '0', lease => '30 s') \gset
SELECT baton.create_queue('other') \gset
SELECT segment('q') AS seg, current_database() AS database, current_database() AS gid \gset
\setenv PGTAP_DATABASE :database

-- used up: quarantined without anybody claiming
SELECT put('q', 5) AS first \gset
SELECT hold('a', 'q') \g /dev/null
SELECT state FROM baton.release(tok('a'), '0') \g /dev/null
SELECT hold('a', 'q') \g /dev/null
CALL baton.maintain('q');
SELECT is(state_of('q', :first), 'claimed', 'a live claim is left alone');
SET pg_baton.clock_offset = 40000;
CALL baton.maintain('q');
RESET pg_baton.clock_offset;
SELECT is(state_of('q', :first), 'gone', 'its last lease is over: set aside');
SELECT row_eq($$SELECT id, cause, generation, failures FROM baton.quarantined('q')$$, ROW(:first::bigint, 'max_attempts'::text, 2::bigint, 2), 'quarantined, with the failure counted');
SELECT is(baton.backlog('q')::int, 4, 'the others are there');
SELECT sound('q');

-- an expired lease with attempts left is only made findable
SELECT hold('b', 'q') \g /dev/null
SET pg_baton.clock_offset = 40000;
CALL baton.maintain();
SELECT is(state_of('q', (h('b')).id), 'ready', 'ready again');
SELECT is(failures_of('q', (h('b')).id), 0, 'its failure is counted by the claim that gets it');
SELECT is((SELECT max(failures) FROM baton.claim('q', max_items => 10)), 1, 'once');
RESET pg_baton.clock_offset;
SELECT baton.fence('q') \g /dev/null
SELECT count(*) FROM baton.take('q', 10) \g /dev/null

-- prepared transactions that have ended
BEGIN;
SELECT put('q', 3) AS first \gset
PREPARE TRANSACTION :'gid';
CALL baton.maintain('q');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'still open: nothing');
COMMIT PREPARED :'gid';
CALL baton.maintain('q');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 3, 'committed: found');

-- a claim that was rolled back
SELECT put('q') AS first \gset
BEGIN;
SELECT count(*) FROM baton.claim('q') \g /dev/null
ROLLBACK;
CALL baton.maintain('q');
SELECT is((SELECT failures FROM baton.take('q')), 1, 'void: counted, and back after the backoff, which is none here');
SELECT is(baton.backlog('q'), 0::float8, 'nothing is left');

-- names of workers are kept for display
SELECT put('q') AS first \gset
SELECT hold('w', 'q', worker => 'remember me') \g /dev/null
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton_internal.worker_name WHERE name = 'remember me'), 1, 'a worker''s name is written down');
SELECT baton.ack(tok('w')) \g /dev/null
-- and removed when no claim can have them any more, which depends on how long a claim can live
SELECT baton.alter_queue('other', max_lifetime => '10 d') \g /dev/null
SET pg_baton.clock_offset = '9d';
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton_internal.worker_name WHERE name = 'remember me'), 1, 'a claim may live for ten days: the name is kept');
SELECT baton.alter_queue('other', max_lifetime => '1 d') \g /dev/null
UPDATE baton_internal.worker_name SET seen = seen - '3 d'::interval;
SET pg_baton.clock_offset = '10d';
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton_internal.worker_name WHERE name = 'remember me'), 0, 'one day: it goes after a week');
RESET pg_baton.clock_offset;

-- T31: what is expired goes, also when nobody claims
SELECT FROM baton.enqueue('q', '"mortal"', expires_at => clock_timestamp() + '1 min');
SET pg_baton.clock_offset = 61000;
SELECT is((SELECT count(*)::int FROM baton.claim('other')), 0, 'a claim elsewhere');
SELECT count(*) FROM baton.claim('q') \g /dev/null
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'a claim sweeps it away');
RESET pg_baton.clock_offset;

-- one damaged queue does not keep it from the others
SELECT baton.create_queue('broken') \gset
SELECT put('broken') \g /dev/null
SELECT segment('broken', 1) AS lost \gset
DROP TABLE :lost CASCADE;
SELECT put('q') AS first \gset
SELECT hold('x', 'q') \g /dev/null
SELECT state FROM baton.release(tok('x'), '0') \g /dev/null
SELECT hold('x', 'q') \g /dev/null
SET pg_baton.clock_offset = 40000;
SET client_min_messages = error;
CALL baton.maintain();
SET client_min_messages = warning;
RESET pg_baton.clock_offset;
SELECT is(state_of('q', :first), 'gone', 'the others are maintained');
SELECT ok(baton.drop_queue('broken', discard => true), 'the damaged one is dropped');

-- who, where
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CALL baton.maintain('none')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  42704', 'no such queue');
SELECT is(error_of('CALL baton.maintain()'), E'25001: baton.maintain() cannot run inside a transaction block\nHINT: Each of its steps has a transaction of its own: CALL it by itself.', 'not in a function');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c BEGIN -c "CALL baton.maintain()" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  25001', 'nor in a transaction block');
DROP ROLE IF EXISTS baton_test_maintain;
CREATE ROLE baton_test_maintain;
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "SET ROLE baton_test_maintain" -c "CALL baton.maintain('q')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  42501', 'a queue of one''s own');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "SET ROLE baton_test_maintain" -c "CALL baton.maintain()" 2>&1`
SELECT is(:{?answer} AND :'answer'::text <> '', FALSE, 'all of one''s own: none');
DROP ROLE baton_test_maintain;
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "SET default_transaction_read_only = on" -c "CALL baton.maintain()" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  25006', 'not read only');

SELECT sound('q');
SELECT sound('other');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('other'), 'dropped');
SELECT * FROM finish();
