-- The lease map as an index: what is refused early, what a rebuild makes of it, and that it leaves no debris.
\ir prelude.psql

SELECT plan(47);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT segment('q') AS seg, segment('q') || '_map' AS map \gset
SELECT substr(:'map', 12) AS map_name \gset
SELECT put('q', 10) AS first \gset
SELECT hold('a', 'q') \g /dev/null

-- refused
SELECT is(error_of(format('DROP INDEX %s', :'map')), format(E'55000: cannot drop lease map "%s"\nDETAIL: It holds the delivery state of the messages in its segment.\nHINT: To get rid of the queue, use baton.drop_queue(); to rebuild the map, use REINDEX INDEX.', :'map_name'), 'DROP INDEX');
SELECT is(head_of(format('DROP INDEX IF EXISTS nothing, %s CASCADE', :'map')), format('55000: cannot drop lease map "%s"', :'map_name'), 'with others');
SELECT alike(error_of(format('CREATE INDEX second ON %s USING baton_lease (id, lane, generation, failures, not_before, routing_key)', :'seg')), format(E'55000: segment "%s" already has a lease map, "%s"\nHINT: A message has one slot: a second map would hand it out twice.', substr(:'seg', 12), :'map_name'), 'a second map');
CREATE TABLE plain (id bigint, lane integer, generation integer, failures integer, not_before timestamptz, routing_key text);
SELECT is(error_of('CREATE INDEX m ON plain USING baton_lease (id, lane, generation, failures, not_before, routing_key)'), E'42809: "plain" cannot have a lease map: it is not a table of type baton.message\nHINT: Queues and their segments are made by baton.create_queue().', 'on any other table');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relname IN ('second', 'm')$$, 'nothing is left of them');
-- concurrent builds, which cannot run in a function: from another session
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
\setenv PGTAP_MAP :map
\setenv PGTAP_SEGMENT :seg
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "REINDEX INDEX CONCURRENTLY $PGTAP_MAP" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  0A000', 'REINDEX CONCURRENTLY');
\set answer `psql -X -A -t -q -v VERBOSITY=terse -d "$PGTAP_DATABASE" -c "REINDEX TABLE CONCURRENTLY $PGTAP_SEGMENT" 2>&1`
SELECT is(:'answer'::text, 'WARNING:  cannot reindex lease maps concurrently, skipping table "q1_0"', 'of the table: passed over');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "CREATE INDEX CONCURRENTLY second ON $PGTAP_SEGMENT USING baton_lease (id, lane, generation, failures, not_before, routing_key)" 2>&1`
SELECT matches(:'answer'::text, '^ERROR:  (0A000|55000)$', 'CREATE INDEX CONCURRENTLY');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "DROP INDEX CONCURRENTLY $PGTAP_MAP" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  55000', 'DROP INDEX CONCURRENTLY');
SELECT is_empty($$SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid OR NOT indisready$$, 'no invalid index is left behind');
SELECT is((SELECT count(*)::int FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'baton_lease' AND c.relname ~ '^q'), 3, 'three maps, as before');
SELECT is(baton.ack(tok('a')), 'acked', 'and leases are as they were');

-- rewritten, moved, vacuumed
SELECT hold('a', 'q') \g /dev/null
VACUUM (FREEZE) :seg;
SELECT is(state_of('q', (h('a')).id), 'claimed', 'VACUUM leaves leases alone');
ANALYZE :seg;
SELECT is(baton.ack(tok('a')), 'acked', 'ANALYZE too');
SELECT put('q', 300) AS more \gset
SELECT count(*) FROM baton.take('q', 200) \g /dev/null
VACUUM :seg;
SELECT sound('q');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 308 - 200, 'what is left is left');
SELECT hold('b', 'q') \g /dev/null
SELECT put('q') AS due \gset
SELECT id AS later FROM baton.enqueue('q', '1', delay => '50 s') \gset
SELECT epoch AS epoch FROM baton_internal.map_meta(:'seg') \gset
SET client_min_messages = error;
REINDEX INDEX :map;
SET client_min_messages = warning;
SELECT cmp_ok((SELECT epoch FROM baton_internal.map_meta(:'seg')), '>', :'epoch'::bigint, 'REINDEX: a new epoch');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('b')], '{ack}')), 'stale_epoch', 'tokens are refused');
SELECT is(state_of('q', (h('b')).id), 'ready', 'their messages are ready');
SELECT is(state_of('q', :later), 'scheduled', 'what waits for its time goes on waiting');
SELECT sound('q');
SELECT results_eq('SELECT id FROM baton.claim(''q'', max_items => 5)', 'SELECT id FROM baton_queue.q ORDER BY id LIMIT 5', 'handed out by id');
SELECT baton.fence('q') \g /dev/null
-- T12, I3: generations begin again, fence numbers do not
SELECT hold('c', 'q') \g /dev/null
SELECT cmp_ok((h('c')).fence, '>', (h('b')).fence, 'fence numbers grow');
SET client_min_messages = error;
VACUUM FULL :seg;
SET client_min_messages = warning;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'stale_epoch', 'VACUUM FULL: the same');
SELECT sound('q');
SELECT hold('c', 'q') \g /dev/null
SET client_min_messages = error;
REINDEX TABLE :seg;
SET client_min_messages = warning;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'stale_epoch', 'REINDEX TABLE');
SELECT hold('c', 'q') \g /dev/null
SET client_min_messages = error;
ALTER TABLE :seg SET LOGGED;
ALTER INDEX :map SET TABLESPACE pg_default;
SET client_min_messages = warning;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'acked', 'what rewrites nothing changes nothing');
-- rolled back
SELECT hold('c', 'q') \g /dev/null
SET client_min_messages = error;
BEGIN;
REINDEX INDEX :map;
SELECT outcome AS inside FROM baton.settle(ARRAY[tok('c')], '{ack}') \gset
ROLLBACK;
SET client_min_messages = warning;
SELECT is(:'inside'::text, 'stale_epoch', 'within its transaction');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'acked', 'a REINDEX that is rolled back never was');
SELECT sound('q');
-- a warning says how much was forgotten
\set answer `psql -X -A -t -q -v VERBOSITY=default -d "$PGTAP_DATABASE" -c "REINDEX INDEX $PGTAP_MAP" 2>&1 | head -n 2`
SELECT matches(:'answer'::text, '^WARNING:  lease map "q\d+_0_map" was built anew: \d+ unsettled messages are ready again\nDETAIL:  Their leases, failures and tokens are forgotten; every earlier token is refused \(QB008\)\.$', 'a WARNING says so');

-- TRUNCATE by hand
SELECT hold('d', 'q') \g /dev/null
SELECT epoch AS epoch FROM baton_internal.map_meta(:'seg') \gset
TRUNCATE :seg;
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'TRUNCATE of a segment empties it');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('d')], '{ack}')), 'stale_epoch', 'its tokens are refused');
SELECT put('q', 3) AS first \gset
SELECT hold('e', 'q') \g /dev/null
SELECT is((h('e')).id, :first, 'ids go on growing');
SELECT cmp_ok((h('e')).fence, '>', (h('d')).fence, 'fence numbers too');
SELECT is(baton.ack(tok('e')), 'acked', 'and it works on');
SELECT sound('q');

-- rows by plain SQL are work like any other
INSERT INTO :seg (id, enqueued_at, payload) VALUES (nextval('baton_data.q1_id'), now(), '"plain"');
SELECT results_eq($$SELECT payload #>> '{}', generation FROM baton.take('q', 10) WHERE payload = '"plain"'$$, $$VALUES ('plain', 1)$$, 'a row by plain INSERT is handed out');
SELECT nextval('baton_data.q1_id') AS copied \gset
COPY baton_data.q1_0 (id, enqueued_at, payload, generation, failures) FROM PROGRAM 'echo "1000000,2024-02-29,7,5,2"' CSV;
SELECT row_eq($$SELECT id, generation, failures FROM baton.claim('q', max_items => 10)$$, ROW(1000000::bigint, 6::bigint, 2), 'by COPY: generation and failures travel with it');
SELECT is(head_of('INSERT INTO baton_data.q1_0 (payload) VALUES (''1'')'), '23502: a message needs an id', 'not without an id');
SELECT setval('baton_data.q1_id', 1000000) \g /dev/null
SELECT sound('q');

-- what the catalog says of it
SELECT is((SELECT amtype::text FROM pg_am WHERE amname = 'baton_lease'), 'i', 'an index access method');
SELECT is_empty($$SELECT c.relname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'baton_lease' AND NOT (SELECT indisvalid AND indisready AND NOT indisunique FROM pg_index WHERE indexrelid = c.oid)$$, 'valid and ready');
SELECT put('q', 2) AS first \gset
SELECT count(*) FROM baton.claim('q') \g /dev/null
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT cmp_ok((SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelid = :'map'::regclass), '>', 0::bigint, 'claims count as scans: no advisor calls it unused');
SET enable_seqscan = off;
SELECT is_empty(format($$SELECT 1 FROM (SELECT * FROM %s WHERE id = 1) x$$, :'seg'), 'no query uses it');
RESET enable_seqscan;
SELECT is((SELECT count(*)::int FROM pg_extension e, pg_depend d WHERE e.extname = 'pg_baton' AND d.refobjid = e.oid AND d.deptype = 'e' AND d.objid = :'map'::regclass), 0, 'it is no member of the extension');

SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
