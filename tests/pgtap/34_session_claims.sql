-- Session-bound claims: they end with their session, and only they. Sessions that end are psql's, in a process of its own.
\ir prelude.psql

SELECT plan(48);
CREATE TABLE gone (pid integer);
GRANT ALL ON gone, held TO PUBLIC;
CREATE PROCEDURE await(condition text) LANGUAGE plpgsql AS $$
DECLARE
    done boolean := false;
BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXECUTE 'SELECT ' || condition INTO done;
        EXIT WHEN done;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
    IF NOT done THEN RAISE 'gave up waiting for: %', condition; END IF;
END $$;
-- Its backend goes a moment after the connection.
CREATE PROCEDURE await_end() LANGUAGE plpgsql AS $$ BEGIN CALL await('NOT EXISTS (SELECT FROM pg_stat_activity JOIN gone USING (pid))'); END $$;
CREATE FUNCTION word(name text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(outcome, ',') FROM baton.extend_batch(ARRAY[tok(name)]) $$;
CREATE FUNCTION held_id(name text) RETURNS bigint LANGUAGE sql AS $$ SELECT (h(held_id.name)).id $$;
\setenv PGDATABASE :DBNAME
\setenv PGOPTIONS '-c client_min_messages=warning -c pg_baton.session_claims=on'
\setenv S 'psql -X -q -v ON_ERROR_STOP=1 -o /dev/null'

SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 3, lease => '10 min') \g /dev/null
SELECT baton.create_queue('other', backoff => '0', lease => '10 min') \g /dev/null
SELECT put('q', 20) \g /dev/null
SELECT put('other', 2) \g /dev/null
SELECT segment('q') AS seg \gset

-- off unless asked for
SELECT is(current_setting('pg_baton.session_claims'), 'off', 'off by default');
SELECT hold('plain', 'q', worker => 'w0') \g /dev/null
SELECT is((SELECT session_bound FROM baton.in_flight), false, 'an ordinary claim');
SET pg_baton.session_claims = on;
SELECT hold('mine', 'q', worker => 'w0') \g /dev/null
SELECT is((SELECT session_bound FROM baton.in_flight WHERE id = held_id('mine')), true, 'one that is bound to the session');
SELECT is(word('mine'), 'extended', 'it is a claim like others: extended');
SELECT isnt(baton.start(tok('mine')), NULL, 'started');
SELECT is((SELECT session_bound FROM baton.in_flight WHERE id = held_id('mine')), true, 'still bound');
SET pg_baton.session_claims = off;
SELECT hold('unbound', 'q', worker => 'w0') \g /dev/null
SELECT is((SELECT session_bound FROM baton.in_flight WHERE id = held_id('unbound')), false, 'the setting at the claim decides');
CREATE TABLE before AS SELECT * FROM baton.in_flight;

-- the session ends with claims of each kind, and with a transaction open
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT hold('a', 'q', worker => 'w1'), hold('b', 'q', worker => 'w1'), hold('settled', 'q'), hold('back', 'q'), hold('open', 'q'), hold('o', 'other')" -c "TRUNCATE before" -c "INSERT INTO before SELECT * FROM baton.in_flight" -c "SELECT baton.start(tok('b'))" -c "SELECT baton.ack(tok('settled'))" -c "SELECT baton.hand_back(ARRAY[tok('back')])" -c "SET pg_baton.session_claims = off" -c "SELECT hold('later', 'other')" -c "BEGIN" -c "SELECT baton.ack(tok('open'))"
CALL await_end();
SELECT is((SELECT count(*) FROM before WHERE session_bound), 7, 'bound while the session was there, with mine');
SELECT results_eq(format('SELECT id, kind, resolved, failures FROM baton_internal.map_slots(%L) WHERE id IN (held_id(%L), held_id(%L)) ORDER BY id', :'seg', 'a', 'b'),
    $$VALUES (held_id('a'), 'disconnected', 'scheduled', 1), (held_id('b'), 'disconnected', 'scheduled', 1)$$, 'the session has ended: ready after the backoff, a failure counted');
SELECT ok(not_before BETWEEN clock_timestamp() + '8 s' AND clock_timestamp() + '11 s', 'the queue''s backoff') FROM baton_queue.q WHERE id = held_id('a');
SELECT is(state_of('other', held_id('o')), 'ready', 'in every queue, at once where there is no backoff');
SELECT is(failures_of('q', held_id('open')), 1, 'a settlement that was open with the session is rolled back first');
SELECT is(state_of('q', held_id('settled')), 'gone', 'what was settled is settled');
SELECT is(failures_of('q', held_id('back')), 0, 'what was handed back counts nothing');
SELECT is((SELECT string_agg(name, ',' ORDER BY name) FROM held WHERE word(name) = 'extended'), 'later,mine,plain,unbound', 'ordinary claims go on, and those of other sessions');
SELECT is(word('a'), 'lease_expired', 'the old token is refused');
SELECT is(error_of($$SELECT baton.ack(tok('a'))$$), format(E'QB002: ack refused: the lease ended before the verb was called\nDETAIL: message %s of queue "q": lease_expired: the session that the claim was bound to has ended.\nHINT: Roll back: somebody else may be working on the message. For long work use baton.extend, or a longer lease.', held_id('a')), 'and told why');
SELECT results_eq($$SELECT generation, failures, worker, verdict, reason FROM baton.evidence('q', held_id('a'))$$, $$VALUES (1::bigint, 1, 'w1', 'disconnect', NULL::text)$$, 'with evidence');
SELECT is((SELECT released FROM baton.queue_counters WHERE queue = 'q'), 4, 'counted as releases, with the one that was handed back');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT is((SELECT count(*) FROM baton.claim('q', max_items => 100)), 0, 'nothing else is there');
SET pg_baton.clock_offset = '12 s';
SELECT is((SELECT count(*) FROM baton.claim('q', max_items => 100)), 3, 'after the backoff they are handed out');
SELECT is(word('a'), 'stale_generation', 'and the old token is another claim''s');
RESET pg_baton.clock_offset;

-- the session's list is no truth: what has gone on without it stays as it is
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q', 3) \g /dev/null
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT hold('x', 'q'), hold('y', 'q'), hold('z', 'q', '1 s')" -c "SELECT baton.release(tok('x'), '0', failed => false)" -c "SET pg_baton.session_claims = off" -c "SELECT hold('x2', 'q')" -c "SET pg_baton.clock_offset = '2 s'" -c "SELECT hold('z2', 'q')"
CALL await_end();
SELECT is(held_id('x2'), held_id('x'), 'released and claimed again by the same session, unbound');
SELECT is(held_id('z2'), held_id('z'), 'lapsed and claimed again');
SELECT is(word('x2'), 'extended', 'the later claim goes on');
SELECT is(word('z2'), 'extended', 'so does this');
SELECT is(word('y'), 'lease_expired', 'the one that was bound is over');
SELECT is(failures_of('q', held_id('x')), 0, 'no failure for what was not bound any more');

-- a claim that was rolled back counts once
SELECT put('other', 1) \g /dev/null
SELECT count(*) FROM baton.take('other', 100) \g /dev/null
SELECT put('other', 1) AS r \gset
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "BEGIN" -c "SELECT * FROM baton.claim('other')" -c "ROLLBACK"
CALL await_end();
SELECT is((SELECT failures FROM baton.claim('other')), 1, 'once for the rollback, and not once more for the session');

-- the last failure: quarantined by whoever meets it next, with all of them counted
SELECT baton.create_queue('last', max_attempts => 1, lease => '10 min') \g /dev/null
SELECT put('last', 1) AS last \gset
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT hold('last', 'last', worker => 'w9')"
CALL await_end();
SELECT is(word('last'), 'lease_expired', 'the token is worth nothing');
SELECT is((SELECT count(*) FROM baton.claim('last')), 0, 'it is not handed out');
CALL await('EXISTS (SELECT FROM baton.quarantined(''last''))');
SELECT results_eq('SELECT id, cause, failures, worker FROM baton.quarantined(''last'')', format('VALUES (%s::bigint, %L, 1, %L)', :last, 'max_attempts', 'w9'), 'the only attempt: quarantined');
SELECT is((SELECT string_agg(verdict || ' ' || failures, ',') FROM baton.evidence('last', :last)), 'disconnect 1', 'with the evidence');

-- take, and settle_and_claim
SELECT put('other', 2) \g /dev/null
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT * FROM baton.take('other')" -c "TRUNCATE before" -c "SELECT * FROM baton.settle_and_claim('other', NULL)" -c "INSERT INTO before SELECT * FROM baton.in_flight WHERE queue = 'other'"
CALL await_end();
SELECT is((SELECT count(*) FROM before WHERE session_bound), 1, 'settle_and_claim binds its claims too');
SELECT is((SELECT count(*) FROM baton_queue.other WHERE state = 'ready' AND failures = 1), 1, 'take is settled, the claim is ready again');

-- more claims than the list keeps
SELECT baton.create_queue('many', backoff => '0', lease => '10 min') \g /dev/null
SELECT put('many', 6000) \g /dev/null
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 50 LOOP
        PERFORM baton.ack_batch(ARRAY(SELECT token FROM baton.claim('many', max_items => 100)));
        COMMIT;
    END LOOP;
END $$;
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "CALL work()" -c "SELECT * FROM baton.claim('many', max_items => 1000)" -c "TRUNCATE before" -c "INSERT INTO before SELECT * FROM baton.in_flight WHERE queue = 'many'"
CALL await_end();
SELECT is((SELECT count(*) FROM before), 1000, 'a thousand claims in one session that has settled five thousand');
SELECT is((SELECT count(*) FROM baton_queue.many WHERE state = 'ready' AND failures = 1), 1000, 'all of them come back');
SELECT is((SELECT count(*) FROM baton_data.evidence e JOIN baton.describe_queue('many') d ON d.option = 'id' AND d.value::int = e.queue_id), 1000, 'each with its evidence');

-- a claim that has been moved to a long segment
SELECT baton.create_queue('far', segments => 2, segment_bytes => 65536, backoff => '0', lease => '1 h') \g /dev/null
CREATE VIEW long_slot AS SELECT s.* FROM (VALUES (0), (1)) v (t), LATERAL baton_internal.map_slots(('baton_data.long_' || t)::regclass) s WHERE s.resolved <> 'gone';
CREATE PROCEDURE maintain_until(condition text) LANGUAGE plpgsql AS $$
DECLARE
    so boolean;
BEGIN
    FOR i IN 1..1500 LOOP
        CALL baton.maintain('far');
        EXECUTE 'SELECT ' || condition INTO so;
        COMMIT;
        EXIT WHEN so;
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;
SELECT count(*) FROM baton.enqueue_batch('far', array_fill(to_jsonb(repeat('x', 700)), ARRAY[300])) \g /dev/null
SELECT count(*) FROM baton.enqueue_batch('far', array_fill(to_jsonb(repeat('x', 700)), ARRAY[20])) \g /dev/null
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT hold('far', 'far')" -c "SELECT count(*) FROM baton.take('far', 1000)" -c "CALL maintain_until('EXISTS (SELECT FROM long_slot)')" -c "TRUNCATE before" -c "INSERT INTO before SELECT * FROM baton.in_flight WHERE queue = 'far'"
CALL await_end();
SELECT is((SELECT count(*) FROM before WHERE session_bound), 1, 'moved to a long segment, and still bound');
SELECT is(word('far'), 'lease_expired', 'it ends with its session');
CALL maintain_until('NOT EXISTS (SELECT FROM long_slot)');
SELECT results_eq('SELECT id, failures FROM baton.take(''far'')', $$VALUES (held_id('far'), 1)$$, 'and is back in its queue, with the failure');

-- a queue that was dropped keeps no other from its turn
SELECT put('q', 5) \g /dev/null
\! $S -c "INSERT INTO gone SELECT pg_backend_pid()" -c "SELECT hold('dropped', 'many'), hold('o2', 'other')" -c "SELECT baton.drop_queue('many', discard => true)"
CALL await_end();
SELECT is(word('dropped'), 'stale_epoch', 'a queue that was dropped');
SELECT is(word('o2'), 'lease_expired', 'the other claim is over');
SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is((SELECT count(*) FROM baton.queues WHERE baton.drop_queue(name, discard => true)), 4, 'dropped');
SELECT * FROM finish();
