-- Durability classes: what is on disk when a verb answers, whatever the session's synchronous_commit; unlogged queues.
\ir prelude.psql

SELECT plan(41);
SELECT baton.create_queue('local', backoff => '0') \gset
SELECT baton.create_queue('async', durability => 'async', backoff => '0') \gset
SELECT baton.create_queue('volatile', durability => 'volatile', backoff => '0') \gset
SELECT baton.create_queue('replicated', durability => 'replicated', backoff => '0') \gset
SELECT baton.create_queue('unflushed', claim_flush => false, backoff => '0') \gset

-- Does a commit reach the disk? Runs sql in a transaction of its own, and compares what was flushed with what it wrote.
CREATE TABLE flushed (what text, n integer, yes boolean);
CREATE PROCEDURE commits(what text, times integer, sql text) LANGUAGE plpgsql AS $$
DECLARE
    written pg_lsn;
BEGIN
    COMMIT;
    FOR i IN 1..times LOOP
        EXECUTE sql;
        written := pg_current_wal_insert_lsn();
        COMMIT;
        INSERT INTO flushed VALUES (what, i, pg_current_wal_flush_lsn() >= written);
        COMMIT;
    END LOOP;
END $$;
-- The same without waiting for the commit: is it on disk when the verb answers? What the verb writes begins at or after
-- where the log ended before it.
CREATE PROCEDURE answers(what text, times integer, sql text) LANGUAGE plpgsql AS $$
DECLARE
    begun pg_lsn;
BEGIN
    COMMIT;
    FOR i IN 1..times LOOP
        begun := pg_current_wal_insert_lsn();
        EXECUTE sql;
        INSERT INTO flushed VALUES (what, i, pg_current_wal_flush_lsn() > begun);
        COMMIT;
    END LOOP;
END $$;
CREATE FUNCTION all_flushed(what text) RETURNS boolean LANGUAGE sql AS $$ SELECT bool_and(yes) FROM flushed f WHERE f.what = all_flushed.what $$;

-- R10, T66: a session that is careless cannot make a queue so
SET synchronous_commit = off;
CALL commits('nothing of ours', 50, 'CREATE TEMP TABLE IF NOT EXISTS t (i int); DROP TABLE t');
SELECT is(all_flushed('nothing of ours'), false, 'synchronous_commit is off: commits are not flushed');
CALL commits('enqueue local', 50, $$SELECT FROM baton.enqueue('local', '1')$$);
SELECT is(all_flushed('enqueue local'), true, 'local: enqueue is on disk when it commits');
CALL commits('enqueue async', 50, $$SELECT FROM baton.enqueue('async', '1')$$);
SELECT is(all_flushed('enqueue async'), false, 'async: it need not be');
CALL commits('view local', 10, $$INSERT INTO baton_queue.local (payload) VALUES ('1')$$);
SELECT is(all_flushed('view local'), true, 'local: INSERT into the view');
CALL answers('claim local', 20, $$SELECT FROM baton.claim('local')$$);
SELECT is(all_flushed('claim local'), true, 'local: a claim is on disk when it is answered');
CALL answers('claim unflushed', 50, $$SELECT FROM baton.enqueue('unflushed', '1')$$);
CALL answers('claim unflushed', 50, $$SELECT FROM baton.claim('unflushed')$$);
SELECT is(all_flushed('claim unflushed'), false, 'claim_flush => off: it need not be');
CALL answers('claim async', 50, $$SELECT FROM baton.claim('async')$$);
SELECT is(all_flushed('claim async'), false, 'async: neither');
CALL commits('ack local', 20, $$SELECT baton.ack(c.token) FROM baton.claim('local') c$$);
SELECT is(all_flushed('ack local'), true, 'local: ack is on disk when it commits');
SELECT put('local', 40) AS first \gset
CALL commits('take local', 10, $$SELECT FROM baton.take('local')$$);
SELECT is(all_flushed('take local'), true, 'local: take');
CALL commits('release local', 10, $$SELECT r.state FROM baton.claim('local') c, baton.release(c.token, '1 h') r$$);
SELECT is(all_flushed('release local'), true, 'local: release');
CALL commits('quarantine local', 10, $$SELECT baton.quarantine(c.token) FROM baton.claim('local') c$$);
SELECT is(all_flushed('quarantine local'), true, 'local: quarantine');
SELECT put('local', 60) AS first \gset
SELECT hold('e', 'local', '10 s') \g /dev/null
CALL answers('extend local', 10, $$SELECT baton.extend(tok('e'), make_interval(secs => 60 + random() * 1000))$$);
SELECT is(all_flushed('extend local'), true, 'local: extend is on disk when it is answered');
CREATE TABLE last_token (t text);
INSERT INTO last_token SELECT token FROM baton.claim('local');
CALL commits('settle_and_claim local', 20, $$UPDATE last_token SET t = (SELECT token FROM baton.settle_and_claim('local', ARRAY[t]) WHERE ord IS NULL)$$);
SELECT is(all_flushed('settle_and_claim local'), true, 'local: settle_and_claim, with its commit');
-- raised for the transaction, not for the session
SELECT is(current_setting('synchronous_commit'), 'off', 'the session''s setting is as it was');
BEGIN;
SELECT FROM baton.enqueue('local', '1');
SELECT is(current_setting('synchronous_commit'), 'off', 'also within the transaction');
SET LOCAL synchronous_commit = off;
COMMIT;
CALL commits('set afterwards', 20, $$SELECT FROM baton.enqueue('local', '1'); SET LOCAL synchronous_commit = off$$);
SELECT is(all_flushed('set afterwards'), true, 'a setting that is lowered after the verb does not weaken it either');
CALL commits('nothing afterwards', 50, 'CREATE TEMP TABLE IF NOT EXISTS t (i int); DROP TABLE t');
SELECT is(all_flushed('nothing afterwards'), false, 'and the next transaction is as careless as before');
RESET synchronous_commit;

-- replicated: not without a standby that confirms
SELECT is(error_of($$SELECT FROM baton.enqueue('replicated', '1')$$), E'55000: the queue''s durability class needs a synchronous standby\nHINT: Set synchronous_standby_names, or change the class with alter_queue(durability => ''local'').', 'replicated: refused without a synchronous standby')
    FROM (SELECT) one WHERE current_setting('synchronous_standby_names') = '';
SELECT is(head_of($$INSERT INTO baton_queue.replicated (payload) VALUES ('1')$$), '55000: the queue''s durability class needs a synchronous standby', 'by every way');
SELECT is(head_of($$SELECT FROM baton.take('replicated')$$), '55000: the queue''s durability class needs a synchronous standby', 'take');
SELECT is((SELECT count(*)::int FROM baton.claim('replicated')), 0, 'a claim is local');
SELECT is(baton.why_empty('replicated'), 'empty', 'nothing is in it');
SELECT lives_ok($$SELECT baton.alter_queue('replicated', durability => 'local')$$, 'changed to local');
SELECT is((SELECT state FROM baton.enqueue('replicated', '1')), 'ready', 'it works');
SELECT hold('x', 'replicated') \g /dev/null
SELECT lives_ok($$SELECT baton.alter_queue('replicated', durability => 'replicated')$$, 'and back');
SELECT is(head_of($$SELECT baton.ack(tok('x'))$$), '55000: the queue''s durability class needs a synchronous standby', 'an ack is refused');
SELECT is(state_of('replicated', (h('x')).id), 'claimed', 'before anything is changed');

-- volatile: everything works, without WAL
SELECT segment('volatile') AS seg \gset
SELECT is((SELECT string_agg(DISTINCT relpersistence::text, '') FROM pg_class WHERE oid = :'seg'::regclass OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = :'seg'::regclass)), 'u', 'unlogged');
SELECT put('volatile', 500) AS first \gset
SELECT results_eq($$SELECT (payload ->> 'n')::int FROM baton.claim('volatile', max_items => 3)$$, 'VALUES (1), (2), (3)', 'claim');
SELECT hold('a' || i, 'volatile') FROM generate_series(1, 5) i \g /dev/null
SELECT results_eq($$SELECT outcome FROM baton.settle(ARRAY[tok('a1'), tok('a2'), tok('a3'), tok('a4')], '{ack,release,quarantine,release_unfailed}', '{0}')$$, $$VALUES ('acked'), ('released'), ('quarantined'), ('released')$$, 'settle');
SELECT isnt(baton.extend(tok('a5'), '1 h'), NULL, 'extend');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a5')])), 'handed_back', 'hand_back');
SELECT is((SELECT count(*)::int FROM baton.take('volatile', 1000)), 495, 'take');
CREATE FUNCTION wal_bytes(sql text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, WAL, FORMAT json) ' || sql INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'WAL Bytes')::bigint;
END $$;
SELECT cmp_ok(wal_bytes(format('SELECT FROM baton.enqueue_batch(%L, ARRAY(SELECT to_jsonb(repeat(%L, 1000)) FROM generate_series(1, 500)))', q, 'x')), op, 100000::bigint, 'half a megabyte of messages: ' || what)
    FROM (VALUES (1, 'volatile', '<', 'only the sequence of ids is in the log'), (2, 'local', '>', 'all of it is')) v (n, q, op, what) ORDER BY n;

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
