-- why_empty and explain_message: why nothing is handed out, and why one message is not.
\ir prelude.psql

SELECT plan(47);
SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 3, claim_ceiling => 5, lease => '30 s') \gset
SELECT segment('q') AS seg, current_database() AS gid \gset
CREATE FUNCTION why(id bigint) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(obstacle || ': ' || coalesce(detail, ''), '; ') FROM baton.explain_message('q', why.id) $$;

SELECT is(baton.why_empty('q'), 'empty', 'nothing there');
SELECT is(why(1), 'not_found: never enqueued, or settled and its segment reclaimed', 'no such message');
SELECT put('q', 3) AS first \gset
SELECT is(baton.why_empty('q'), NULL, 'null: there is something to claim');
SELECT is(baton.why_empty('q', 'w1'), NULL, 'for a worker');
SELECT is(why(:first), 'none: can be claimed now', 'nothing stands in its way');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 3)), 3, 'asking has claimed nothing');
SELECT is(baton.why_empty('q'), 'empty', 'all are held');
SELECT baton.fence('q') \g /dev/null
SELECT count(*) FROM baton.take('q', 10) \g /dev/null

-- claimed
SELECT put('q') AS first \gset
SELECT hold('a', 'q', worker => 'w7') \g /dev/null
SELECT matches(why(:first), '^claimed: claim 1, held by w7 since \d{4}-.*, not started$', 'claimed, by whom, since when');
SELECT is((SELECT until FROM baton.explain_message('q', :first)), (h('a')).lease_until, 'until when');
SELECT baton.start(tok('a')) \g /dev/null
SELECT alike(why(:first), '%, started', 'started');
SET pg_baton.clock_offset = 31000;
SELECT is(why(:first), 'none: can be claimed now', 'its lease is over: it can be claimed');
SELECT is(baton.why_empty('q'), NULL, 'why_empty knows');
RESET pg_baton.clock_offset;

-- scheduled, for want of time or after a failure
SELECT state FROM baton.release(tok('a')) \g /dev/null
SELECT is(why(:first), 'scheduled: waits after failure 1', 'after a failure');
SELECT is((SELECT until FROM baton.explain_message('q', :first)), (SELECT not_before FROM baton_queue.q WHERE id = :first), 'until when');
SELECT is(baton.why_empty('q'), 'empty', 'nothing due');
SELECT id AS later FROM baton.enqueue('q', '1', delay => '1 h') \gset
SELECT is(why(:later), 'scheduled: not yet due', 'not yet due');

-- several at once
SELECT baton.pause('q') \g /dev/null
SELECT is(why(:later), $$paused: SELECT baton.resume('q'); scheduled: not yet due$$, 'one row per obstacle');
SELECT is(baton.why_empty('q'), 'paused', 'why_empty: paused');
UPDATE baton_internal.queue SET home_system = 1;
SELECT baton.alter_queue('q') \g /dev/null
SELECT is(why(:later), $$restored: the queue was copied from elsewhere: SELECT baton.adopt('q'); paused: SELECT baton.resume('q'); scheduled: not yet due$$, 'with what to do about it');
SELECT is(baton.why_empty('q'), 'restored', 'why_empty: the first');
SELECT baton.adopt('q') \g /dev/null
SELECT baton.resume('q') \g /dev/null

-- expired, used up
SELECT id AS mortal FROM baton.enqueue('q', '1', expires_at => clock_timestamp() + '1 min') \gset
SET pg_baton.clock_offset = 61000;
SELECT alike(why(:mortal), 'expired: expired at %', 'expired');
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
SELECT is(why(:mortal), 'settled: expired', 'and gone with the next claim');
RESET pg_baton.clock_offset;
SELECT put('q') AS last \gset
SELECT hold('l', 'q') \g /dev/null
SELECT baton.alter_queue('q', max_attempts => 1) \g /dev/null
SET pg_baton.clock_offset = 100000;
SELECT is(why(:last), 'exhausted: 1 failures of 1: will be quarantined', 'its last lease is over');
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
SELECT alike(why(:last), 'quarantined: cause: max_attempts, since %', 'and it is, with the next claim');
RESET pg_baton.clock_offset;
SELECT baton.alter_queue('q', max_attempts => 3) \g /dev/null
SELECT put('q') AS last \gset
SELECT hold('l', 'q') \g /dev/null
SELECT outcome FROM baton.hand_back(ARRAY[tok('l')]) \g /dev/null
SELECT baton.alter_queue('q', max_attempts => 1, claim_ceiling => 1) \g /dev/null
SELECT is(why(:last), 'exhausted: 1 claims of 1: will be quarantined', 'at the claim ceiling');
SELECT baton.alter_queue('q', claim_ceiling => 5) \g /dev/null
SELECT baton.alter_queue('q', max_attempts => 3) \g /dev/null
SELECT count(*) FROM baton.take('q', 10) \g /dev/null

-- settled
SELECT put('q', 4) AS first \gset
SELECT hold('s' || i, 'q') FROM generate_series(1, 4) i \g /dev/null
SELECT baton.ack(tok('s1')) \g /dev/null
SELECT is(why((h('s1')).id), 'settled: acknowledged', 'acknowledged');
SELECT baton.quarantine(tok('s2'), 'bad') \g /dev/null
SELECT alike(why((h('s2')).id), 'quarantined: cause: verb, reason: bad, since %', 'quarantined');
BEGIN;
SELECT put('q') AS undone \gset
SELECT is(why(:undone), 'uncommitted: enqueued by this transaction', 'enqueued by this transaction');
ROLLBACK;
SELECT is(why(:undone), 'settled: its enqueue was rolled back', 'rolled back');
BEGIN;
SELECT baton.ack(tok('s3')) \g /dev/null
SELECT alike(why((h('s3')).id), 'settling: claim 1 of % is being settled by an open transaction', 'being settled by this transaction');
ROLLBACK;

-- by others: with their process ids
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
CREATE TABLE reports (what text, answer text, pids integer[]);
-- another session keeps a transaction open until this one has looked
CREATE PROCEDURE keep_open(what text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        EXIT WHEN EXISTS (SELECT FROM reports r WHERE r.what = keep_open.what);
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
CREATE FUNCTION until_open(sql text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found boolean := false;
BEGIN
    FOR i IN 1..3000 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXECUTE sql INTO found;
        EXIT WHEN found;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT (h('s3')).id AS s3, tok('s3') AS token \gset
\setenv PGTAP_TOKEN :token
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "BEGIN" -c "SELECT baton.ack('$PGTAP_TOKEN')" -c "CALL keep_open('ack')" -c "ROLLBACK" >/dev/null 2>&1 & echo 1`
SELECT until_open(format($$SELECT obstacle = 'settling' FROM baton.explain_message('q', %s)$$, :s3)) \g /dev/null
INSERT INTO reports SELECT 'ack', obstacle, pids FROM baton.explain_message('q', :s3);
SELECT is(answer, 'settling', 'being settled by another session') FROM reports WHERE what = 'ack';
SELECT ok(cardinality(pids) = 1 AND pids[1] <> pg_backend_pid(), 'with its process id') FROM reports WHERE what = 'ack';
SELECT until_open(format($$SELECT obstacle = 'claimed' FROM baton.explain_message('q', %s)$$, :s3)) \g /dev/null
SELECT is(baton.ack(:'token'), 'acked', 'it was rolled back');
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "BEGIN" -c "SELECT FROM baton.enqueue('q', '1')" -c "CALL keep_open('enqueue')" -c "ROLLBACK" >/dev/null 2>&1 & echo 1`
SELECT until_open(format($$SELECT count(*) = 1 FROM baton_internal.map_slots(%L) WHERE resolved = 'uncommitted'$$, :'seg')) \g /dev/null
SELECT id AS pending FROM baton_internal.map_slots(:'seg') WHERE resolved = 'uncommitted' \gset
INSERT INTO reports SELECT 'enqueue', obstacle || ': ' || detail, pids FROM baton.explain_message('q', :pending);
SELECT is(answer, 'uncommitted: the transaction that enqueues it is still open', 'enqueued by another session') FROM reports WHERE what = 'enqueue';
SELECT ok(cardinality(pids) = 1 AND pids[1] <> pg_backend_pid(), 'with its process id') FROM reports WHERE what = 'enqueue';
SELECT put('q') AS locked \gset
SELECT until_open('SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query ~ ''keep_open'' AND pid <> pg_backend_pid())') \g /dev/null
\setenv PGTAP_LOCK :locked
\setenv PGTAP_SEGMENT :seg
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "BEGIN" -c "SELECT FROM $PGTAP_SEGMENT WHERE id = $PGTAP_LOCK FOR UPDATE" -c "CALL keep_open('lock')" -c "ROLLBACK" >/dev/null 2>&1 & echo 1`
SELECT until_open(format($$SELECT obstacle = 'locked' FROM baton.explain_message('q', %s)$$, :locked)) \g /dev/null
INSERT INTO reports SELECT 'lock', obstacle || ': ' || detail, pids FROM baton.explain_message('q', :locked);
SELECT is(answer, 'locked: its row is locked or being deleted by plain SQL; claims pass it over', 'its row is locked') FROM reports WHERE what = 'lock';
SELECT ok(cardinality(pids) = 1 AND pids[1] <> pg_backend_pid(), 'with the process id') FROM reports WHERE what = 'lock';
SELECT until_open(format($$SELECT obstacle = 'none' FROM baton.explain_message('q', %s)$$, :locked)) \g /dev/null

-- a row deleted by plain SQL
DELETE FROM :seg WHERE id = :locked;
SELECT is(why(:locked), 'row_gone: its row was deleted by plain SQL; the next look at the slot settles it', 'deleted by plain SQL');
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
SELECT is(why(:locked), 'settled: purged', 'the next look settles it');

-- arguments, and that asking changes nothing
SELECT is(head_of('SELECT baton.why_empty(NULL)'), '22023: a queue name must not be null', 'why_empty of null');
SELECT is(head_of($$SELECT FROM baton.explain_message('q', NULL)$$), '22023: id must not be null', 'explain_message of no id');
SELECT is(why(-1), 'not_found: never enqueued, or settled and its segment reclaimed', 'a negative id');
SELECT is(why(9223372036854775807), 'not_found: never enqueued, or settled and its segment reclaimed', 'the last id');
BEGIN READ ONLY;
SELECT obstacle AS answer FROM baton.explain_message('q', :locked) \gset
SELECT head_of($$SELECT baton.why_empty('q')$$) AS why \gset
COMMIT;
SELECT is(:'answer'::text, 'settled', 'explain_message in a read-only transaction');
SELECT is(:'why'::text, '25006: cannot execute why_empty in a read-only transaction', 'why_empty not: it looks as a claim does');

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
