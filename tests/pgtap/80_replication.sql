-- Messages that arrive by logical replication: shown, kept, and not handed out until activate(). The publisher is another
-- database of the same cluster, whose queue has the same id.
\ir prelude.psql

-- Our workers in both databases, and those of the replication
SELECT current_setting('wal_level') = 'logical' AND current_setting('max_worker_processes')::int >= 16 AS logical \gset
\if :logical
SELECT plan(27);
SELECT baton.create_queue('q', replicable => true, segments => 2) \gset
SELECT current_database() AS here, current_database() || '_x' AS publisher \gset
SELECT format('CREATE DATABASE %I', :'publisher') \gexec
\setenv PGTAP_OTHER :publisher
\set quiet `psql -X -q -d "$PGTAP_OTHER" -c "SET client_min_messages = error" -c "CREATE EXTENSION pg_baton" -c "SELECT baton.create_queue('q', replicable => true, segments => 2)" -c "CREATE PUBLICATION p FOR TABLES IN SCHEMA baton_data" -c "SELECT pg_create_logical_replication_slot('$PGTAP_OTHER', 'pgoutput')" 2>&1`
\set sent `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT count(*) FROM baton.enqueue_batch('q', '{1,2,3}')"`
SELECT is(:'sent'::int, 3, 'three messages at the publisher');
\getenv host PGHOST
\getenv port PGPORT
SELECT format('CREATE SUBSCRIPTION %I CONNECTION %L PUBLICATION p WITH (create_slot = false, slot_name = %L)', :'publisher', format('host=%s port=%s dbname=%s', :'host', :'port', :'publisher'), :'publisher') \gexec
CREATE PROCEDURE until_rows(n integer) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        EXIT WHEN (SELECT count(*) FROM baton_queue.q) >= n;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
CALL until_rows(3);
SELECT is((SELECT count(*)::int FROM baton_queue.q), 3, 'they arrive: by the copy at the start');
\set sent `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT count(*) FROM baton.enqueue_batch('q', '{4,5}')"`
CALL until_rows(5);
SELECT is((SELECT count(*)::int FROM baton_queue.q), 5, 'and one by one');
SELECT is((SELECT string_agg(DISTINCT state, ',') FROM baton_queue.q), 'foreign', 'shown as foreign');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'not handed out');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 0, 'nor taken');
SELECT is(baton.why_empty('q'), 'empty', 'to a worker there is nothing');
SELECT is((SELECT string_agg(DISTINCT obstacle || ': ' || detail, ',') FROM baton_queue.q v, baton.explain_message('q', v.id)), $$foreign: arrived by logical replication: SELECT baton.activate('q')$$, 'explain_message says what to do');
SELECT is(baton.backlog('q'), 0::float8, 'no backlog of this queue''s');
SELECT row_eq($$SELECT ready, scheduled, claimed FROM baton.queue_stats WHERE queue = 'q'$$, ROW(0::bigint, 0::bigint, 0::bigint), 'nor in queue_stats');
SELECT is(head_of($$SELECT baton.drop_queue('q')$$), '55000: queue "q" is not empty', 'but the queue is not empty');
SELECT is((SELECT string_agg(problem, ',') FROM baton.check('q')), 'id_beyond_sequence', 'the sequence of ids does not travel: check says so');

-- settled at the publisher: gone here
\set settled `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT count(*) FROM baton.take('q', 2)"`
SELECT is(:'settled'::int, 2, 'two are settled at the publisher');
CREATE PROCEDURE until_gone(n integer) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        EXIT WHEN (SELECT count(*) FROM baton_queue.q) <= n;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
CALL until_gone(3);
SELECT is((SELECT count(*)::int FROM baton_queue.q), 3, 'and go from here');

-- one that expires is not this side's to remove
\set sent `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT count(*) FROM baton.enqueue('q', '7', expires_at => clock_timestamp() + '1 day')"`
CALL until_rows(4);
SET pg_baton.clock_offset = 172800000;
CALL baton.maintain('q');
SELECT is((SELECT string_agg(state, ',') FROM baton_queue.q WHERE expires_at IS NOT NULL), 'foreign', 'what expires is left to the publisher');
RESET pg_baton.clock_offset;

-- this side takes over
SELECT format('ALTER SUBSCRIPTION %I DISABLE', :'publisher') \gexec
SELECT format('ALTER SUBSCRIPTION %I SET (slot_name = NONE)', :'publisher') \gexec
SELECT format('DROP SUBSCRIPTION %I', :'publisher') \gexec
\set dropped `psql -X -A -t -q -d "$PGTAP_OTHER" -v ON_ERROR_STOP=1 -c "DO \$\$ BEGIN FOR i IN 1..3000 LOOP EXIT WHEN NOT (SELECT active FROM pg_replication_slots WHERE slot_name = '$PGTAP_OTHER'); PERFORM pg_sleep(0.01); END LOOP; END \$\$" -c "SELECT count(pg_drop_replication_slot('$PGTAP_OTHER'))"`
SELECT cmp_ok(baton.activate('q'), '>=', 3::bigint, 'activated');
SELECT is((SELECT string_agg(DISTINCT state, ',') FROM baton_queue.q), 'ready', 'ready');
SET pg_baton.clock_offset = 172800000;
CALL baton.maintain('q');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE expires_at IS NOT NULL), 0, 'and then removes what has expired');
RESET pg_baton.clock_offset;
SELECT results_eq('SELECT payload::int, generation, failures FROM baton.claim(''q'', max_items => 10)', 'VALUES (3, 1::bigint, 0), (4, 1, 0), (5, 1, 0)', 'handed out');
SELECT is(baton.fence('q'), 3::bigint, 'like any other');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 3, 'and settled');
SELECT is(baton.activate('q'), 0::bigint, 'nothing is left to activate');
SELECT is((SELECT id FROM baton.enqueue('q', '6')), 7, 'its own messages go on above theirs');
SELECT is((SELECT payload::int FROM baton.take('q')), 6, 'and are handed out');
SELECT sound('q');
SELECT format('DROP DATABASE %I WITH (FORCE)', :'publisher') \gexec
SELECT is(:'dropped'::int, 1, 'the slot is dropped');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
\else
SELECT plan(1);
SELECT pass('needs wal_level = logical and max_worker_processes = 16');
\endif
SELECT * FROM finish();
