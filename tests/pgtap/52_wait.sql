-- wait and wait_any: sleep without a snapshot until there is something to claim.
\ir prelude.psql

SELECT plan(54);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT baton.create_queue('p') \gset
SELECT baton.create_queue('r') \gset
SELECT current_database() AS database, pg_backend_pid() AS pid \gset
\setenv PGTAP_DATABASE :database
\setenv PGTAP_PID :pid
-- Another session looks at this one while it waits: how its snapshot and transaction id are, and then does something.
CREATE TABLE seen (what text, snapshot text, xid text, state text, at timestamptz);
CREATE PROCEDURE while_waiting(pid integer, what text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        PERFORM pg_stat_clear_snapshot();
        IF EXISTS (SELECT FROM pg_stat_activity a WHERE (a.pid = while_waiting.pid OR while_waiting.pid IS NULL AND datname = current_database()) AND wait_event_type = 'Extension' AND query ~* '^CALL baton.wait') THEN
            INSERT INTO seen SELECT while_waiting.what, a.backend_xmin::text, a.backend_xid::text, a.state, clock_timestamp() FROM pg_stat_activity a WHERE a.pid = while_waiting.pid;
            RETURN;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE EXCEPTION 'nobody waited';
END $$;

-- nothing there
CALL baton.wait('q', '0 s') \gset
SELECT is(:'reason'::text, 'timeout', 'nothing, at once');
SELECT clock_timestamp() AS before \gset
CALL baton.wait('q', '0.3 s') \gset
SELECT is(:'reason'::text, 'timeout', 'nothing within 0.3 s');
SELECT ok(clock_timestamp() - :'before'::timestamptz BETWEEN '0.3 s' AND '5 s', 'no earlier, and not much later');
SELECT clock_timestamp() AS before \gset
CALL baton.wait_any('{q,p}', '0.3 s') \gset
SELECT is(:{?queue}, FALSE, 'wait_any: null after the timeout');
SELECT ok(clock_timestamp() - :'before'::timestamptz BETWEEN '0.3 s' AND '5 s', 'no earlier');

-- something there already
SELECT put('q', 2) AS first \gset
SELECT clock_timestamp() AS before \gset
CALL baton.wait('q') \gset
SELECT is(:'reason'::text, 'ready', 'ready');
SELECT ok(clock_timestamp() - :'before'::timestamptz < '5 s', 'at once, not after the default timeout of 20 s');
CALL baton.wait('q', '10 s') \gset
SELECT is(:'reason'::text, 'ready', 'and again: waiting claims nothing');
CALL baton.wait_any('{p,q,r}', '10 s') \gset
SELECT is(:'queue'::text, 'q', 'wait_any says which');
CALL baton.wait_any('{q,q}', '10 s') \gset
SELECT is(:'queue'::text, 'q', 'named twice');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 2, 'both messages can be claimed');

-- woken by a commit; while it waits it holds no snapshot and no transaction id
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL while_waiting($PGTAP_PID, 'commit')" -c "SELECT FROM baton.enqueue('q', '1')" >/dev/null 2>&1 & echo 1`
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'woken by another session''s commit');
SELECT ok(clock_timestamp() - at < '5 s', 'long before the timeout') FROM seen WHERE what = 'commit';
SELECT row_eq($$SELECT snapshot, xid, state FROM seen WHERE what = 'commit'$$, ROW(NULL::text, NULL::text, 'active'::text), 'while it waited: no snapshot, no transaction id');
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'there it is');
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL while_waiting($PGTAP_PID, 'any')" -c "SELECT FROM baton.enqueue('r', '1')" >/dev/null 2>&1 & echo 1`
CALL baton.wait_any('{q,p,r}', '50 s') \gset
SELECT is(:'queue'::text, 'r', 'wait_any: the queue that woke it');
SELECT row_eq($$SELECT snapshot, xid FROM seen WHERE what = 'any'$$, ROW(NULL::text, NULL::text), 'no snapshot, no transaction id');
SELECT count(*) FROM baton.take('r') \g /dev/null

-- T64: without any wake-up it looks for itself
SET pg_baton.wait_recheck = '50ms';
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL while_waiting($PGTAP_PID, 'copy')" -c "BEGIN" -c "INSERT INTO baton_queue.q (payload) VALUES ('1')" -c "COMMIT" >/dev/null 2>&1 & echo 1`
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'with a short recheck');
RESET pg_baton.wait_recheck;
SELECT count(*) FROM baton.take('q') \g /dev/null

-- T77: woken when something comes due, and when a lease ends
SELECT FROM baton.enqueue('q', '"due"', delay => '0.4 s');
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'a message that comes due');
SELECT is((SELECT payload FROM baton.claim('q', lease => '0.4 s')), '"due"', 'never before it can be claimed');
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'a lease that ends');
SELECT is((SELECT generation FROM baton.claim('q', lease => '10 s')), 2::bigint, 'never before it can be claimed');
SELECT baton.fence('q') \g /dev/null
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'what fence has ended');
SELECT hold('b', 'q') \g /dev/null
SELECT outcome FROM baton.hand_back(ARRAY[tok('b')]) \g /dev/null
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'what is handed back');
SELECT hold('b', 'q') \g /dev/null
SELECT state FROM baton.release(tok('b'), '0.3 s') \g /dev/null
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'ready', 'what is released with a delay');
SELECT count(*) FROM baton.take('q') \g /dev/null
SELECT is(baton.why_empty('q'), 'empty', 'nothing is left');

-- what is not for it does not wake it
SELECT put('p') AS first \gset
CALL baton.wait('q', '0.2 s') \gset
SELECT is(:'reason'::text, 'timeout', 'another queue''s message');
SELECT hold('held', 'p', '1 min') \g /dev/null
CALL baton.wait('p', '0.2 s') \gset
SELECT is(:'reason'::text, 'timeout', 'a message that is held');
SELECT baton.ack(tok('held')) \g /dev/null

-- statement_timeout: it says so before it is cut
SET statement_timeout = '1s';
SELECT clock_timestamp() AS before \gset
CALL baton.wait('q', '50 s') \gset
SELECT is(:'reason'::text, 'statement_timeout', 'a little before statement_timeout');
SELECT ok(clock_timestamp() - :'before'::timestamptz BETWEEN '0.5 s' AND '1 s', 'before it');
CALL baton.wait_any('{q,p}', '50 s') \gset
SELECT is(:{?queue}, FALSE, 'wait_any: null');
RESET statement_timeout;

-- arguments. In a function a CALL is refused before anything else, so that these come from another session.
CREATE FUNCTION refused(answer text) RETURNS text LANGUAGE sql AS $$ SELECT substr(line, 9) FROM regexp_split_to_table(answer, E'\n') line WHERE line LIKE 'ERROR:  %' $$;
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('none', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '42704: queue "none" does not exist', 'no such queue');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait(NULL, '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: a queue name must not be null', 'no queue');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: a queue name must have 1 to 63 bytes', 'an empty name');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: a queue name must have 1 to 63 bytes', 'a name that is too long');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('q', '-1 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: timeout is out of range', 'a negative timeout');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('q', '1 hour 0.000001 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: timeout is out of range', 'more than an hour');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('q', '1 month')" 2>&1`
SELECT is(refused(:'answer'), '22023: timeout must not contain months or years', 'a month');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any(NULL, '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: queues must name at least one queue', 'wait_any of null');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{}', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: queues must name at least one queue', 'of none');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{q,NULL}', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: queues must not contain nulls', 'with a null');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{q,none}', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '42704: queue "none" does not exist', 'with one that is not there');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{{q},{p}}', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: queues must have one dimension', 'of two dimensions');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{q}', '-1 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: timeout is out of range', 'with a negative timeout');
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait_any('{xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}', '0 s')" 2>&1`
SELECT is(refused(:'answer'), '22023: a queue name must have 1 to 63 bytes', 'with a name that is too long');

-- C15: not where it would hold a snapshot
SELECT is(error_of($$CALL baton.wait('q', '0 s')$$), E'25001: baton.wait cannot run inside a transaction block\nHINT: Call it on its own: it ends its transaction while it sleeps, so that it holds no snapshot.', 'not in a function');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c BEGIN -c "CALL baton.wait('q', '0 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  25001', 'not in a transaction block');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c BEGIN -c "CALL baton.wait_any('{q}', '0 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  25001', 'wait_any neither');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "SET default_transaction_read_only = on" -c "CALL baton.wait('q', '0 s')" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  25006', 'not read only');

-- dropped while it waits
\set started `psql -X -q -d "$PGTAP_DATABASE" -c "CALL while_waiting(NULL, 'drop')" -c "SELECT baton.drop_queue('r')" >/dev/null 2>&1 & echo 1`
\set answer `psql -X -A -t -q -v VERBOSITY=verbose -d "$PGTAP_DATABASE" -c "CALL baton.wait('r', '50 s')" 2>&1`
SELECT is(refused(:'answer'), '42704: queue "r" does not exist', 'dropped while it waits: no such queue');

SELECT is((SELECT waiting FROM baton.queue_stats WHERE queue = 'q'), 0, 'nobody waits any more');
SELECT sound('q');
SELECT sound('p');
SELECT ok(baton.drop_queue('q') AND baton.drop_queue('p'), 'dropped');
SELECT * FROM finish();
