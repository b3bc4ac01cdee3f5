-- Whatever the planner does with a query around it, a verb runs once and hands out what was asked for.
\ir prelude.psql

SELECT plan(37);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT put('q', 2000) AS first \gset
CREATE TABLE business (id bigint PRIMARY KEY, note text);
INSERT INTO business SELECT i, 'x' FROM generate_series(1, 2000) i;

-- B1, T52: joins in every way the planner knows, without statistics
CREATE TABLE ways (way text, settings text[]);
INSERT INTO ways VALUES ('as it likes', '{}'), ('nested loop', '{enable_hashjoin,enable_mergejoin,enable_material,enable_memoize}'), ('hash', '{enable_nestloop,enable_mergejoin}'), ('merge', '{enable_nestloop,enable_hashjoin}'),
    ('no index', '{enable_indexscan,enable_bitmapscan,enable_indexonlyscan,enable_hashjoin,enable_mergejoin,enable_material}'), ('no hash aggregate', '{enable_hashagg,enable_sort}');
CREATE FUNCTION in_way(settings text[], sql text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    s text; before bigint := (SELECT c.claimed FROM baton.queue_counters c WHERE queue = 'q');
BEGIN
    FOREACH s IN ARRAY settings LOOP
        PERFORM set_config(s, 'off', true);
    END LOOP;
    EXECUTE sql;
    FOREACH s IN ARRAY settings LOOP
        PERFORM set_config(s, 'on', true);
    END LOOP;
    RETURN (SELECT c.claimed FROM baton.queue_counters c WHERE queue = 'q') - before;
END $$;
SELECT is(in_way(settings, $$UPDATE business SET note = 'claimed' WHERE id IN (SELECT id FROM baton.claim('q'))$$), 1, 'UPDATE … WHERE id IN (SELECT … claim), ' || way) FROM ways;
SELECT is(in_way(settings, $$SELECT count(*) FROM business b, business c, baton.claim('q', max_items => 2) m WHERE b.id = m.id AND c.id = m.id$$), 2, 'joined twice, ' || way) FROM ways;
SELECT is(in_way(settings, $$DELETE FROM business WHERE id = ANY (ARRAY(SELECT id FROM baton.take('q')))$$), 1, 'DELETE with an array of take, ' || way) FROM ways;
SELECT is((SELECT count(*)::int FROM business WHERE note = 'claimed'), 6, 'each updated its one');
SELECT is(in_way('{}', $$SELECT EXISTS (SELECT FROM baton.claim('q'))$$), 1, 'EXISTS');
SELECT is(in_way('{}', $$WITH c AS (SELECT * FROM baton.claim('q')) SELECT 1$$), 0, 'a CTE that nobody reads claims nothing');
SELECT is(in_way('{}', $$WITH c AS (SELECT * FROM baton.claim('q')) SELECT * FROM c a, c b$$), 1, 'one that is read twice claims once');
SELECT is(in_way('{}', $$SELECT (SELECT token FROM baton.claim('q')) FROM generate_series(1, 5)$$), 1, 'a subquery that depends on nothing runs once');
SELECT is(in_way('{}', $$SELECT (SELECT token FROM baton.claim('q', 'w' || i)) FROM generate_series(1, 5) i$$), 5, 'one that depends on the row, once for each');
SELECT is(in_way('{}', $$SELECT * FROM baton.claim('q', max_items => 5) ORDER BY id DESC LIMIT 1$$), 5, 'LIMIT limits what is shown, max_items what is claimed');

-- B5: generic plans
SET plan_cache_mode = force_generic_plan;
PREPARE claim_n (text, int) AS SELECT count(*)::int FROM baton.claim($1, max_items => $2);
SELECT results_eq($$EXECUTE claim_n ('q', 3)$$, 'VALUES (3)', 'a generic plan');
SELECT results_eq($$EXECUTE claim_n ('q', 7)$$, 'VALUES (7)', 'with other parameters');
PREPARE look (text) AS SELECT count(*)::int FROM baton_queue.q WHERE state = $1;
SELECT cmp_ok((SELECT count(*)::int FROM baton_queue.q WHERE state = 'claimed'), '>', 0, 'some are claimed');
CREATE TABLE counted AS EXECUTE look ('claimed');
SELECT is((SELECT count FROM counted), (SELECT count(*)::int FROM baton_queue.q WHERE state = 'claimed'), 'the view under a generic plan');
SELECT is_empty($$SELECT * FROM baton.check('q')$$, 'check');
SELECT isnt_empty($$SELECT * FROM baton.queue_stats$$, 'queue_stats');
SELECT is((SELECT obstacle FROM baton.explain_message('q', :first)), 'claimed', 'explain_message');
RESET plan_cache_mode;

-- the map answers no query: it is never scanned
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT segment('q') AS seg \gset
SELECT is((SELECT count(*)::int FROM :seg WHERE id = :first + 100 AND routing_key IS NULL), 1, 'a query on its columns reads the table');
RESET enable_seqscan;
RESET enable_bitmapscan;
SET max_parallel_workers_per_gather = 4;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT is((SELECT count(DISTINCT m.id)::int FROM business b JOIN (SELECT id FROM baton.claim('q', max_items => 10)) m ON true WHERE b.id > 0), 10, 'beside a parallel scan');
SELECT is((SELECT count(*)::int FROM baton_queue.q v JOIN business b USING (id) WHERE v.state <> 'claimed') > 0, true, 'the view, with parallel plans allowed');
RESET max_parallel_workers_per_gather;

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
