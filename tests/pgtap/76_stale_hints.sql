-- Hints that have gone stale: a message is found at once, however many of them lie before it, and they cost little and once.
\ir prelude.psql

SELECT plan(13);
SELECT baton.create_queue('q', backoff => '0', lease => '1 h', segment_bytes => 1099511627776) \gset
SELECT segment('q') AS seg \gset
CREATE FUNCTION waiting_hints() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(revisits)::bigint FROM baton_internal.lane_hints(segment('q')::regclass) $$;
CREATE FUNCTION buffers(sql text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) ' || sql INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int;
END $$;

-- Everything is published many times over: by fence, and by sweeps that are forced. Then it is settled.
SELECT put('q', 3000) AS first \gset
SELECT count(*) FROM baton.claim('q', max_items => 3000) \g /dev/null
SELECT is(baton.fence('q'), 3000::bigint, '3000 claims are ended, their messages published');
SELECT baton_internal.sweep('q') FROM generate_series(1, 4) \g /dev/null
SELECT is((SELECT count(*)::int FROM baton.take('q', 3000)), 3000, 'all are handed out, each once');
SELECT cmp_ok(waiting_hints(), '>', 10::bigint, 'hints are left over');
SELECT put('q') AS next \gset
SELECT is((SELECT id FROM baton.claim('q')), :next, 'a new message is found at once');

-- one that comes back is published behind them
SELECT put('q', 3000) AS next \gset
SELECT count(*) FROM baton.claim('q', max_items => 3000) \g /dev/null
SELECT baton.fence('q') \g /dev/null
SELECT hold('a', 'q') AS next \gset
SELECT baton_internal.sweep('q') FROM generate_series(1, 4) \g /dev/null
SELECT count(*) FROM baton.take('q', 3000) \g /dev/null
SELECT cmp_ok(waiting_hints(), '>', 10::bigint, 'hints are left over');
SELECT state FROM baton.release(tok('a'), '0') \g /dev/null
SELECT is(hold('a', 'q'), :next, 'a message that was released is found at once');
SELECT outcome FROM baton.hand_back(ARRAY[tok('a')]) \g /dev/null
SELECT is(baton.why_empty('q'), NULL, 'and why_empty is not wrong');
SELECT is((SELECT id FROM baton.take('q')), :next, 'taken');
SELECT is(baton.why_empty('q'), 'empty', 'then it is empty');

-- what it costs to walk over them, once
SELECT put('q', 3000) \g /dev/null
SELECT count(*) FROM baton.claim('q', max_items => 3000) \g /dev/null
SELECT baton.fence('q') \g /dev/null
SELECT baton_internal.sweep('q') FROM generate_series(1, 4) \g /dev/null
SELECT count(*) FROM baton.take('q', 3000) \g /dev/null
SELECT cmp_ok(buffers('SELECT FROM baton.claim(''q'')'), '<=', 500, 'not a page for each slot');
SELECT put('q', 3) \g /dev/null
SELECT cmp_ok(buffers('SELECT FROM baton.claim(''q'')'), '<=', 10, 'and never again');

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
