-- The kill switches, by reload. They are settings of the whole cluster: while this file runs, nothing else of the suite may
-- (the runner's default is one file at a time). On a server that is not the runner's own they are put back in any case
-- that does not end this script.
\ir prelude.psql

SELECT plan(80);
-- what an earlier run that was cut short may have left
ALTER SYSTEM RESET pg_baton.claims;
ALTER SYSTEM RESET pg_baton.enabled;
SELECT pg_reload_conf() \g /dev/null
CREATE TABLE setting (name text, value text);
-- Statements that wait until this session has the setting: the reload is a signal, read between two statements.
CREATE FUNCTION until() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('DO $d$ BEGIN IF current_setting(%L) <> %L THEN PERFORM pg_sleep(0.02); END IF; END $d$', name, value) FROM setting, generate_series(1, 500)
$$;
INSERT INTO setting VALUES ('pg_baton.claims', 'on'), ('pg_baton.enabled', 'on');
SELECT until() \gexec
TRUNCATE setting;

SELECT baton.create_queue('q', backoff => '0') \gset
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
SELECT put('q', 10) AS first \gset
SELECT hold('a' || i, 'q') FROM generate_series(1, 6) i \g /dev/null
SELECT baton.quarantine(tok('a6')) \g /dev/null

-- claims off: nothing is handed out, everything else goes on
ALTER SYSTEM SET pg_baton.claims = off;
SELECT pg_reload_conf() \g /dev/null
INSERT INTO setting VALUES ('pg_baton.claims', 'off');
SELECT until() \gexec
SELECT is(current_setting('pg_baton.claims'), 'off', 'claims are off');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'claim: nothing');
SELECT is((SELECT count(*)::int FROM baton.take('q')), 0, 'take: nothing');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('q', ARRAY[tok('a1')])), 1, 'settle_and_claim: the outcome only');
SELECT is(baton.why_empty('q'), 'disabled', 'why_empty: disabled');
SELECT is((SELECT string_agg(obstacle || ': ' || detail, '; ') FROM baton.explain_message('q', :first + 7)), 'claims_off: pg_baton.claims is off', 'explain_message');
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'switches'), 'warning, pg_baton.enabled = on, pg_baton.claims = off', 'health');
CALL baton.wait('q', '0.2 s') \gset
SELECT is(:'reason'::text, 'timeout', 'wait: nothing comes');
SELECT is((SELECT state FROM baton.enqueue('q', '1')), 'ready', 'enqueue works');
SELECT is(baton.ack(tok('a2')), 'acked', 'ack works');
SELECT is((SELECT state FROM baton.release(tok('a3'))), 'ready', 'release works');
SELECT isnt(baton.extend(tok('a4'), '1 min'), NULL, 'extend works');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a5')])), 'handed_back', 'hand_back works');
SELECT baton.create_queue('other') \gset
SELECT is(baton.drop_queue('other'), true, 'queues are made and dropped');
SELECT is(baton.backlog('q')::int, 8, 'the backlog is counted');
SELECT lives_ok($$SELECT baton.fence('q')$$, 'fence');
SELECT sound('q');

-- and on again
ALTER SYSTEM RESET pg_baton.claims;
SELECT pg_reload_conf() \g /dev/null
UPDATE setting SET value = 'on';
SELECT until() \gexec
SELECT is(current_setting('pg_baton.claims'), 'on', 'claims are on');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 1, 'handed out again');
SELECT is(baton.why_empty('q'), NULL, 'there is more');

-- enabled off: every verb says so, looking does not
SELECT hold('b', 'q') \g /dev/null
ALTER SYSTEM SET pg_baton.enabled = off;
SELECT pg_reload_conf() \g /dev/null
UPDATE setting SET name = 'pg_baton.enabled', value = 'off';
SELECT until() \gexec
SELECT is(current_setting('pg_baton.enabled'), 'off', 'switched off');
CREATE TABLE calls (call text);
INSERT INTO calls VALUES ($$SELECT baton.create_queue('x')$$), ($$SELECT baton.alter_queue('q')$$), ($$SELECT baton.drop_queue('q', discard => true)$$), ($$SELECT baton.pause('q')$$), ($$SELECT baton.resume('q')$$), ($$SELECT baton.fence('q')$$),
    ($$SELECT baton.adopt('q')$$), ($$SELECT baton.activate('q')$$), ($$SELECT FROM baton.enqueue('q', '1')$$), ($$SELECT FROM baton.enqueue_bytes('q', 'x')$$), ($$SELECT FROM baton.enqueue_batch('q', '{1}')$$),
    ($$SELECT FROM baton.enqueue_batch_bytes('q', '{x}')$$), ($$INSERT INTO baton_queue.q (payload) VALUES ('1')$$), ($$SELECT FROM baton.claim('q')$$), ($$SELECT FROM baton.take('q')$$), ($$SELECT FROM baton.settle_and_claim('q', NULL)$$),
    ($$SELECT baton.ack(tok('b'))$$), ($$SELECT baton.ack_batch(ARRAY[tok('b')])$$), ($$SELECT FROM baton.release(tok('b'))$$), ($$SELECT baton.quarantine(tok('b'))$$), ($$SELECT baton.extend(tok('b'))$$),
    ($$SELECT FROM baton.extend_batch(ARRAY[tok('b')])$$), ($$SELECT baton.start(tok('b'))$$), ($$SELECT FROM baton.hand_back(ARRAY[tok('b')])$$), ($$SELECT FROM baton.settle(ARRAY[tok('b')], '{ack}')$$);
SELECT is(error_of(call), E'55000: pg_baton is switched off\nHINT: Set pg_baton.enabled to on and reload the configuration.', left(call, 60)) FROM calls;
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CALL baton.wait('q', '0 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  55000', 'CALL baton.wait');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{q}', '0 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  55000', 'CALL baton.wait_any');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CALL baton.maintain('q')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  55000', 'CALL baton.maintain');
SELECT is(error_of(call), 'no error', left(call, 60)) FROM (VALUES ('SELECT * FROM baton.queues'), ('SELECT * FROM baton.queue_stats'), ('SELECT * FROM baton.in_flight'), ('SELECT * FROM baton.segments'), ('SELECT * FROM baton.health'),
    ('SELECT * FROM baton.queue_counters'), ('SELECT * FROM baton_queue.q'), ($$SELECT * FROM baton.check('q')$$), ($$SELECT baton.backlog('q')$$), ($$SELECT * FROM baton.explain_message('q', 1)$$), ($$SELECT * FROM baton.describe_queue('q')$$),
    ($$SELECT * FROM baton.quarantined('q')$$), ('SELECT * FROM baton.outcomes()'), ('SELECT * FROM baton.help()')) c (call);
SELECT is(baton.why_empty('q'), 'disabled', 'why_empty says why');
SELECT alike((SELECT string_agg(obstacle || ': ' || detail, '; ') FROM baton.explain_message('q', :first + 7)), 'disabled: pg_baton.enabled is off%', 'explain_message too');
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'switches'), 'error, pg_baton.enabled = off, pg_baton.claims = on', 'health');
SELECT is(state_of('q', (h('b')).id), 'claimed', 'leases run on');

ALTER SYSTEM RESET pg_baton.enabled;
SELECT pg_reload_conf() \g /dev/null
UPDATE setting SET value = 'on';
SELECT until() \gexec
SELECT is(current_setting('pg_baton.enabled'), 'on', 'switched on');
SELECT is(baton.ack(tok('b')), 'acked', 'and a token that was told before works');
SELECT is((SELECT count(*)::int FROM baton.take('q', 100)), 6, 'as do messages');

-- while somebody waits
CREATE PROCEDURE when_waiting() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Extension' AND query ~ '^CALL baton.wait');
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL when_waiting()" -c "ALTER SYSTEM SET pg_baton.enabled = off" -c "SELECT pg_reload_conf()" >/dev/null 2>&1 & echo 1`
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CALL baton.wait('q', '50 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  55000', 'a session that waits is told as well');
ALTER SYSTEM RESET pg_baton.enabled;
SELECT pg_reload_conf() \g /dev/null
SELECT until() \gexec

-- neither is anybody's but a superuser's, nor of one session
SELECT is(head_of('SET pg_baton.enabled = off'), '55P02: parameter "pg_baton.enabled" cannot be changed now', 'not in a session');
SELECT is(head_of('SET pg_baton.claims = off'), '55P02: parameter "pg_baton.claims" cannot be changed now', 'neither');
CREATE ROLE baton_test_switch;
SELECT is(split_part(error_as('baton_test_switch', 'SET pg_baton.clock_offset = 1000'), E'\n', 1), '42501: permission denied to set parameter "pg_baton.clock_offset"', 'the clock is shifted by superusers only');
SELECT is(split_part(error_as('baton_test_switch', 'SET pg_baton.debug_point = ''x'''), E'\n', 1), '42501: permission denied to set parameter "pg_baton.debug_point"', 'debug points too');
SELECT is(error_as('baton_test_switch', 'SET pg_baton.settle_timeout = 1000'), 'no error', 'how long one waits is one''s own');
SELECT is(head_of('SET pg_baton.nonsense = 1'), '42602: invalid configuration parameter name "pg_baton.nonsense"', 'and there are no other settings');
DROP ROLE baton_test_switch;

SELECT is((SELECT count(*)::int FROM pg_file_settings WHERE name ~ '^pg_baton\.(enabled|claims)$' AND sourcefile ~ 'auto.conf'), 0, 'the configuration is as it was');
SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
