-- revoke: takes a message away from its worker, at once, fenced, with a row in the audit.
\ir prelude.psql

SELECT plan(49);
CREATE ROLE baton_test_chief;
CREATE ROLE baton_test_worker;
SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 3, lease => '10 min', max_delay => '1 day') \g /dev/null
GRANT DELETE ON baton_queue.q TO baton_test_chief;
GRANT UPDATE ON baton_queue.q TO baton_test_worker;
SELECT put('q', 10) AS first \gset
SELECT segment('q') AS seg \gset
CREATE FUNCTION revoked(name text, args text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE format('SELECT baton.revoke(%L, %s %s)', 'q', (h(name)).id, args) INTO answer;
    RETURN answer;
END $$;

-- at once, without a failure
SELECT hold('a', 'q', worker => 'wedged') AS a \gset
SELECT is(baton.revoke('q', :a, reason => 'does not answer'), 'revoked', 'revoked');
SELECT row_eq(format('SELECT state, failures, generation, worker FROM baton_queue.q WHERE id = %s', :a), ROW('ready'::text, 0, 1::bigint, NULL::text), 'ready again, without a failure');
SELECT is((SELECT kind FROM baton_internal.map_slots(:'seg') WHERE id = :a), 'revoked', 'as its slot says');
SELECT row_eq('SELECT action, queue, affected, reason, details FROM baton.audit', ROW('revoke'::text, 'q'::text, 1::bigint, 'does not answer'::text, format('{"id": %s, "failed": false, "worker": "wedged", "generation": 1}', :a)::jsonb), 'with a row in the audit');
SELECT is((SELECT count(*) FROM baton.evidence('q', :a)), 0, 'no failure, no evidence');
SELECT is(error_of($$SELECT baton.ack(tok('a'))$$), format(E'QB008: ack refused: the place this token points to has been reclaimed, rebuilt or fenced\nDETAIL: message %s of queue "q": stale_epoch: the claim was revoked.\nHINT: Roll back: this claim is over.', :a), 'its token is refused');
SELECT is((SELECT string_agg(o, ',') FROM (SELECT outcome FROM baton.extend_batch(ARRAY[tok('a')]) UNION ALL SELECT outcome FROM baton.hand_back(ARRAY[tok('a')]) UNION ALL SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{release}')) t (o)), 'stale_epoch,stale_epoch,stale_epoch', 'for everything');
SELECT is(hold('a2', 'q'), :a, 'handed out again');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'stale_generation', 'then the old token is another claim''s');
SELECT is(baton.ack(tok('a2')), 'acked', 'and the new one settles');

-- with a failure, with a delay
SELECT hold('b', 'q', worker => 'w') AS b \gset
SELECT is(baton.revoke('q', :b, true, NULL, 'loops'), 'revoked', 'it is to blame');
SELECT row_eq(format('SELECT state, failures, not_before BETWEEN clock_timestamp() + %L AND clock_timestamp() + %L FROM baton_queue.q WHERE id = %s', '9 s', '11 s', :b), ROW('scheduled'::text, 1, true), 'a failure, and the queue''s backoff');
SELECT results_eq(format('SELECT generation, failures, worker, verdict, reason FROM baton.evidence(%L, %s)', 'q', :b), $$VALUES (1::bigint, 1, 'w', 'revoke', 'loops')$$, 'with evidence');
SELECT hold('c', 'q') AS c \gset
SELECT is(baton.revoke('q', :c, delay => '1 h'), 'revoked', 'a delay of one''s own');
SELECT row_eq(format('SELECT state, failures, round(extract(epoch FROM not_before - clock_timestamp()) / 60) FROM baton_queue.q WHERE id = %s', :c), ROW('scheduled'::text, 0, 60::numeric), 'an hour');
SELECT hold('d', 'q') AS d \gset
SELECT is(baton.revoke('q', :d, true, '0'), 'revoked', 'a failure and no wait');
SELECT row_eq(format('SELECT state, failures FROM baton_queue.q WHERE id = %s', :d), ROW('ready'::text, 1), 'ready');
SELECT is(hold('d', 'q'), :d, 'it comes next') ;
SELECT is(revoked('d', ', true, $$0$$'), 'revoked', 'the second');
SELECT is(hold('d', 'q'), :d, 'again');
SELECT is(revoked('d', ', true, $$0$$, $$enough$$'), 'revoked', 'the last failure');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('d')], '{ack}')), 'lease_expired', 'the token is refused all the same');
CALL baton.maintain('q');
SELECT results_eq('SELECT id, cause, failures FROM baton.quarantined(''q'')', format('VALUES (%s::bigint, %L, 3)', :d, 'max_attempts'), 'and the message is quarantined');

-- started, session-bound, not started: all the same
SET pg_baton.session_claims = on;
SELECT hold('s', 'q') AS s \gset
RESET pg_baton.session_claims;
SELECT baton.start(tok('s')) \g /dev/null
SELECT is(revoked('s'), 'revoked', 'started and bound to a session');
SELECT hold('s2', 'q') \g /dev/null
SELECT is((SELECT count(*) FROM baton.in_flight WHERE session_bound OR running IS NOT NULL), 0, 'nothing of that stays');

-- what is not held
SELECT bag_eq($$SELECT DISTINCT state, baton.revoke('q', id) FROM baton_queue.q WHERE state IN ('ready', 'scheduled')$$, $$VALUES ('ready', 'not_claimed'), ('scheduled', 'not_claimed')$$, 'ready or scheduled: nobody holds it');
SELECT is(baton.revoke('q', :a), 'not_claimed', 'settled');
SELECT is(baton.revoke('q', :d), 'not_claimed', 'quarantined');
SELECT is(baton.revoke('q', 4711), 'not_found', 'there is no such message');
SELECT is(baton.revoke('q', -1), 'not_found', 'nor can there be');
SET pg_baton.clock_offset = '11 min';
SELECT is(revoked('s2'), 'not_claimed', 'a lease that is over');
RESET pg_baton.clock_offset;
SELECT is((SELECT count(*) FROM baton.audit), 7, 'none of that is in the audit');

-- a settlement in progress, one's own and a prepared one
BEGIN;
SELECT baton.ack(tok('s2')) \g /dev/null
SELECT is(revoked('s2'), 'already_settled', 'settled by this transaction');
ROLLBACK;
SELECT current_database() AS gid \gset
BEGIN;
SELECT baton.ack(tok('s2')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is(revoked('s2'), 'settling', 'by a prepared one');
ROLLBACK PREPARED :'gid';
SELECT is(state_of('q', (h('s2')).id), 'claimed', 'which changed nothing');

-- acts at once, whatever becomes of the transaction; only the audit goes with it
BEGIN;
SELECT is(revoked('s2'), 'revoked', 'in a transaction');
ROLLBACK;
SELECT is(state_of('q', (h('s2')).id), 'ready', 'rolled back: taken away all the same');
SELECT is((SELECT count(*) FROM baton.audit), 7, 'the row in the audit is rolled back');
SELECT hold('e', 'q') \g /dev/null
SET pg_baton.debug_point = 'revoke-written:error';
SELECT isnt(error_of(format('SELECT baton.revoke(%L, %s)', 'q', (h('e')).id)), 'no error', 'an error after the audit has been written');
RESET pg_baton.debug_point;
SELECT is(state_of('q', (h('e')).id), 'claimed', 'leaves the claim alone');

-- who may
SELECT is(value_as('baton_test_chief', format('SELECT baton.revoke(%L, %s)', 'q', (h('e')).id)), 'revoked', 'DELETE on the queue''s view is enough');
SELECT is((SELECT acting_as FROM baton.audit ORDER BY at DESC LIMIT 1), 'baton_test_chief', 'written down under the role that did it');
SELECT is(error_as('baton_test_worker', $$SELECT baton.revoke('q', 1)$$), E'42501: permission denied for queue "q"\nDETAIL: DELETE on its view is needed to purge, cancel, revoke, redrive and replay.\nHINT: GRANT DELETE ON baton_queue.q TO baton_test_worker;', 'UPDATE is not');

-- arguments
SELECT is(head_of($$SELECT baton.revoke('none', 1)$$), '42704: queue "none" does not exist', 'no such queue');
SELECT is(head_of($$SELECT baton.revoke('q', NULL)$$), '22023: id must not be null', 'no id');
SELECT is(head_of($$SELECT baton.revoke('q', 1, delay => '-1 s')$$) || head_of($$SELECT baton.revoke('q', 1, delay => '25 h')$$), '22023: delay is out of range22023: delay is out of range', 'a delay out of range');
SELECT is(head_of($$SELECT baton.revoke('q', 1, reason => repeat('x', 100000))$$), '22023: reason is too long', 'a novel');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.revoke('q', 1)$$), '25006: cannot execute revoke in a read-only transaction', 'read only');
ROLLBACK;
SELECT sound('q');
SELECT baton.drop_queue('q', discard => true) \g /dev/null
DROP ROLE baton_test_chief, baton_test_worker;
SELECT * FROM finish();
