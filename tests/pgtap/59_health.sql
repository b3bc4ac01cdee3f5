-- What health says of the workers. In place of what they last did there is a table here, so that one can be late or missing
-- without anybody having to wait for it.
\ir prelude.psql

SELECT plan(30);
CREATE TABLE did (worker text, here boolean, pid integer, step text, success interval, error_ago interval, error text, state text);
CREATE FUNCTION health(item text) RETURNS text LANGUAGE sql BEGIN ATOMIC
    SELECT h.state || ', ' || h.detail FROM baton.health h WHERE h.item = health.item;
END;

BEGIN;
CREATE OR REPLACE FUNCTION baton_internal.worker_status()
    RETURNS TABLE (database oid, worker text, pid integer, step text, last_success timestamptz, last_error timestamptz, error text, runs bigint,
                   state text, since timestamptz)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 10 AS $$
    SELECT CASE WHEN d.worker <> 'launcher' THEN CASE WHEN d.here THEN (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) ELSE 1 END END,
           d.worker, d.pid, d.step, clock_timestamp() - d.success, clock_timestamp() - d.error_ago, d.error, 7::bigint, d.state, clock_timestamp() - interval '1 h'
    FROM public.did d $$;
INSERT INTO did VALUES
    ('launcher', NULL, 11, 'databases', '30 s', NULL, NULL, 'running'), ('launcher', NULL, 11, 'workers', '5 s', NULL, NULL, 'running'),
    ('mover', true, 12, 'queues', '1 s', NULL, NULL, 'running'), ('mover', true, 12, 'sweep', '40 min', NULL, NULL, 'running'),
    ('retention', true, 13, 'queues', '2 s', NULL, NULL, 'running'), ('retention', true, 13, 'rotate', '2 s', NULL, NULL, 'running'),
    ('mover', false, 22, 'queues', '1 d', '1 s', 'of another database', 'running');

-- all is well
SELECT is(health('launcher'), 'ok, pid 11, looked at the databases 00:00:30 ago', 'launcher');
SELECT is(health('mover'), 'ok, pid 12, last step 00:00:01 ago', 'mover');
SELECT is(health('retention'), 'ok, pid 13, last step 00:00:02 ago', 'retention');
SELECT is(health('mover: queues'), 'ok, done 00:00:01 ago', 'each step');
SELECT is(health('mover: sweep'), 'ok, done 00:40:00 ago', 'a step that had nothing to do for long is fine');
SELECT is((SELECT count(*)::int FROM baton.health WHERE item ~ '^(mover|retention): '), 4, 'and no step of another database');

-- late
UPDATE did SET success = '20 s' WHERE worker = 'mover' AND here;
SELECT alike(health('mover'), 'warning, late: last step 00:00:20 ago.%', 'a mover that is late');
SELECT alike(health('mover'), '%pg_stat_activity WHERE pid = 12;%pg_terminate_backend(12)%', 'with where to look, and what helps');
SELECT alike(health('retention'), 'ok, %', 'the other is not');
UPDATE did SET success = '20 s' WHERE worker = 'retention';
SELECT alike(health('retention'), 'ok, %', 'which may sleep for longer');
UPDATE did SET success = '26 s' WHERE worker = 'retention';
SELECT alike(health('retention'), 'warning, late: %', 'but not for that long');
UPDATE did SET success = '2 min' WHERE worker = 'retention';
SELECT alike(health('retention'), 'error, late: %', 'nor for minutes');
SET LOCAL pg_baton.clock_offset = '1h';
SELECT alike(health('mover'), 'warning, late: last step 00:00:20 ago.%', 'by the real clock');

-- a step that fails
UPDATE did SET success = '1 s' WHERE worker IN ('mover', 'retention') AND here;
UPDATE did SET error_ago = '0.5 s', error = 'queue 5: a reason' WHERE worker = 'mover' AND step = 'sweep';
SELECT is(health('mover: sweep'), 'error, failed 00:00:01 ago: queue 5: a reason; done 00:00:01 ago', 'a step that fails');
SELECT alike(health('mover'), 'ok, %', 'does not stop its worker');
UPDATE did SET error_ago = '15 s' WHERE worker = 'mover' AND step = 'sweep';
SELECT alike(health('mover: sweep'), 'error, failed 00:00:15 ago: %', 'also while it is done for other queues: each that fails is tried again within this time');
UPDATE did SET error_ago = '1 h' WHERE worker = 'mover' AND step = 'sweep';
SELECT is(health('mover: sweep'), 'ok, done 00:00:01 ago; last failed 01:00:00 ago: queue 5: a reason', 'when it has not failed again, it is over');
UPDATE did SET success = NULL WHERE worker = 'mover' AND step = 'sweep';
SELECT is(health('mover: sweep'), 'error, failed 01:00:00 ago: queue 5: a reason; never done', 'unless it has not been done since');

-- stands by, or is not there
UPDATE did SET state = 'standing by' WHERE worker = 'mover' AND here;
SELECT is(health('mover'), 'error, pid 12 stands by, the SQL of this database is newer than the library: restart the server', 'an older library');
UPDATE did SET pid = NULL, state = 'left' WHERE worker IN ('mover', 'retention') AND here;
SELECT is(health('mover'), 'warning, no process: claims find what is due themselves, later. See launcher, and the server''s log; by hand: CALL baton.maintain()', 'no mover');
SELECT is(health('retention'), 'warning, no process: the mover does its work; without both, segments grow. See launcher, and the server''s log; by hand: CALL baton.maintain()', 'no retention');
DELETE FROM did WHERE here;
SELECT alike(health('mover'), 'warning, no process: %', 'nor a place for one');
SELECT is((SELECT count(*)::int FROM baton.health WHERE item ~ '^(mover|retention)'), 2, 'one line each, then');

-- the launcher
UPDATE did SET error_ago = '1 s', error = 'too few worker processes: increase max_worker_processes' WHERE step = 'workers';
SELECT is(health('launcher'), 'warning, too few worker processes: increase max_worker_processes', 'too few worker processes');
UPDATE did SET error_ago = '10 s' WHERE step = 'workers';
SELECT alike(health('launcher'), 'ok, %', 'and enough since');
DELETE FROM did WHERE worker = 'launcher';
SELECT is(health('launcher'), 'error, no process; it comes back within 5 s, or the server''s log says why not', 'no launcher');
ROLLBACK;

-- and with what they really do
SELECT lives_ok('SELECT * FROM baton.health', 'health');
SELECT is_empty('SELECT item FROM baton.health GROUP BY item HAVING count(*) > 1', 'one line per subject');
SELECT is((SELECT string_agg(DISTINCT w.state, ' ') FROM baton_internal.worker_status() w WHERE w.worker = 'launcher'), 'running', 'the launcher is there');
SELECT is((SELECT count(*)::int FROM baton.health WHERE length(detail) > 240), 0, 'no detail fills a screen');
SELECT * FROM finish();
