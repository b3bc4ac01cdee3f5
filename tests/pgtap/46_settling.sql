-- A message that another transaction is settling: here one that is prepared, so that one session can show it.
\ir prelude.psql

SELECT plan(45);
SELECT baton.create_queue('q', backoff => '0', lease => '30 s') \gset
SELECT segment('q') AS seg \gset
SELECT current_database() AS database, current_database() AS gid \gset
\setenv PGTAP_DATABASE :database

SELECT put('q', 6) AS first \gset
SELECT hold('a', 'q', worker => 'w1') \g /dev/null
SELECT hold('b', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('a')) \g /dev/null
PREPARE TRANSACTION :'gid';

-- array forms answer at once
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'settling', 'settle');
SELECT is((SELECT string_agg(outcome, ',') FROM baton.settle(ARRAY[tok('a'), tok('b')], '{release}', '{0}')), 'settling,released', 'and goes on with the others');
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('a')])), 'settling', 'extend_batch');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'settling', 'hand_back');
SELECT is((SELECT outcome FROM baton.settle_and_claim('q', ARRAY[tok('a')]) WHERE ord = 1), 'settling', 'settle_and_claim');
SELECT alike(error_of($$SELECT baton.ack_batch(ARRAY[tok('a'), tok('a')])$$), '55P03: ack_batch refused: 2 of 2 tokens%', 'ack_batch');

-- single forms wait, no longer than the setting
SET pg_baton.settle_timeout = 0;
SELECT matches(error_of($$SELECT baton.ack(tok('a'))$$), E'^55P03: ack refused: another transaction is settling this message and has not ended\nDETAIL: message \\d+ of queue "q": settling: transaction \\d+ is settling the message and has not ended\\.\nHINT: Try again, or use baton\\.settle, which reports instead of waiting\\.$', 'ack');
SELECT is(head_of($$SELECT FROM baton.release(tok('a'))$$), '55P03: release refused: another transaction is settling this message and has not ended', 'release');
SELECT is(head_of($$SELECT baton.quarantine(tok('a'))$$), '55P03: quarantine refused: another transaction is settling this message and has not ended', 'quarantine');
SELECT is(head_of($$SELECT baton.extend(tok('a'))$$), '55P03: extend refused: another transaction is settling this message and has not ended', 'extend');
SELECT is(head_of($$SELECT baton.start(tok('a'))$$), '55P03: start refused: another transaction is settling this message and has not ended', 'start');
SET pg_baton.settle_timeout = '300ms';
SELECT clock_timestamp() AS before \gset
SELECT head_of($$SELECT baton.ack(tok('a'))$$) AS answer \gset
SELECT ok(clock_timestamp() - :'before'::timestamptz >= '0.3 s', 'waits as long as it is told');
SELECT is(:'answer'::text, '55P03: ack refused: another transaction is settling this message and has not ended', 'and then gives up');
SET statement_timeout = '100ms';
SET pg_baton.settle_timeout = '1min';
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), '57014: canceling statement due to statement timeout', 'statement_timeout ends the wait');
RESET statement_timeout;
RESET pg_baton.settle_timeout;

-- nobody else gets it, also when its lease is over
SET pg_baton.clock_offset = 60000;
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10) WHERE id = (h('a')).id), 0, 'not handed out, though its lease is over');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'settling', 'it was settled in time');
RESET pg_baton.clock_offset;
SELECT is(state_of('q', (h('a')).id), 'settling', 'the view says settling');
SELECT is((SELECT worker FROM baton_queue.q WHERE id = (h('a')).id), 'w1', 'by whom');
SELECT is((SELECT settling FROM baton.queue_stats WHERE queue = 'q'), 1, 'queue_stats counts it');
SELECT is((SELECT state || ', ' || worker FROM baton.in_flight WHERE id = (h('a')).id), 'settling, w1', 'in_flight shows it');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', (h('a')).id)), 'settling: claim 1 of w1 is being settled by an open transaction', 'explain_message says why it does not run');
SELECT is(head_of($$SELECT baton.drop_queue('q')$$), '55000: queue "q" is not empty', 'the queue is not empty');
SELECT sound('q');

-- committed: settled for good
COMMIT PREPARED :'gid';
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), 'QB003: ack refused: the message was settled before', 'committed: settled before');
SELECT is(state_of('q', (h('a')).id), 'gone', 'gone');

-- rolled back: claimed as before, or expired meanwhile
SELECT put('q', 2) AS first \gset
SELECT hold('c', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('c')) \g /dev/null
PREPARE TRANSACTION :'gid';
ROLLBACK PREPARED :'gid';
SELECT is(state_of('q', (h('c')).id), 'claimed', 'rolled back: claimed');
SELECT is(baton.ack(tok('c')), 'acked', 'and its token works');
SELECT hold('c', 'q') \g /dev/null
BEGIN;
SELECT state FROM baton.release(tok('c'), '1 h') \g /dev/null
PREPARE TRANSACTION :'gid';
ROLLBACK PREPARED :'gid';
SET pg_baton.clock_offset = 40000;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'lease_expired', 'a release that was rolled back, after the lease');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10) WHERE id = (h('c')).id), 1, 'handed out again');
RESET pg_baton.clock_offset;

-- a prepared enqueue
BEGIN;
SELECT put('q', 3) AS first \gset
PREPARE TRANSACTION :'gid';
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'a prepared enqueue is not handed out');
SELECT is((SELECT obstacle FROM baton.explain_message('q', :first)), 'uncommitted', 'explain_message');
COMMIT PREPARED :'gid';
SELECT baton_internal.sweep('q') \g /dev/null
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 3, 'committed: handed out, at the latest after a sweep');
BEGIN;
SELECT put('q', 3) AS first \gset
PREPARE TRANSACTION :'gid';
ROLLBACK PREPARED :'gid';
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'rolled back: never was');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', :first)), 'settled: its enqueue was rolled back', 'explain_message');

-- a prepared release
SELECT put('q') AS first \gset
SELECT hold('r', 'q') \g /dev/null
BEGIN;
SELECT state FROM baton.release(tok('r'), '0') \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'a prepared release');
COMMIT PREPARED :'gid';
SELECT baton_internal.sweep('q') \g /dev/null
SELECT row_eq('SELECT generation, failures FROM baton.claim(''q'')', ROW(2::bigint, 1), 'committed: handed out, with its failure');

-- a prepared quarantine
SELECT put('q') AS first \gset
SELECT hold('r', 'q') \g /dev/null
BEGIN;
SELECT baton.quarantine(tok('r'), 'prepared') \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is((SELECT count(*)::int FROM baton.quarantined('q')), 0, 'a prepared quarantine');
SELECT is(state_of('q', :first), 'settling', 'is not final');
COMMIT PREPARED :'gid';
SELECT is((SELECT reason FROM baton.quarantined('q')), 'prepared', 'committed: it is');

-- T65: a waiting verb reads the clock when the wait is over, not when it began. Another session ends the prepared
-- transaction as soon as this one waits (or the lease is over).
CREATE PROCEDURE until_waiting(waiter integer, not_before timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN clock_timestamp() >= not_before AND EXISTS (SELECT FROM pg_stat_activity WHERE pid = waiter AND wait_event_type = 'Extension');
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT pg_backend_pid() AS pid \gset
\setenv PGTAP_PID :pid
SET pg_baton.settle_timeout = '1min';
SELECT put('q') AS first \gset
SELECT hold('w', 'q', '0.2 s') \g /dev/null
SELECT (h('w')).lease_until AS until \gset
\setenv PGTAP_UNTIL :until
BEGIN;
SELECT baton.ack(tok('w')) \g /dev/null
PREPARE TRANSACTION :'gid';
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL until_waiting($PGTAP_PID, '$PGTAP_UNTIL')" -c "ROLLBACK PREPARED '$PGTAP_DATABASE'" >/dev/null 2>&1 & echo 1`
SELECT is(head_of($$SELECT baton.ack(tok('w'))$$), 'QB002: ack refused: the lease ended before the verb was called', 'the other was rolled back after the end of the lease: expired');
\setenv PGTAP_UNTIL -infinity
SELECT count(*) FROM baton.take('q', 10) \g /dev/null
SELECT put('q', 2) AS first \gset
SELECT hold('w', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('w')) \g /dev/null
PREPARE TRANSACTION :'gid';
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL until_waiting($PGTAP_PID, '$PGTAP_UNTIL')" -c "ROLLBACK PREPARED '$PGTAP_DATABASE'" >/dev/null 2>&1 & echo 1`
SELECT is(baton.ack(tok('w')), 'acked', 'the other was rolled back within it: acknowledged after the wait');
SELECT hold('w', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('w')) \g /dev/null
PREPARE TRANSACTION :'gid';
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL until_waiting($PGTAP_PID, '$PGTAP_UNTIL')" -c "COMMIT PREPARED '$PGTAP_DATABASE'" >/dev/null 2>&1 & echo 1`
SELECT is(head_of($$SELECT baton.ack(tok('w'))$$), 'QB003: ack refused: the message was settled before', 'the other committed: settled before');
RESET pg_baton.settle_timeout;

SELECT is((SELECT count(*)::int FROM pg_prepared_xacts WHERE database = current_database()), 0, 'no transaction is left prepared');
SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
