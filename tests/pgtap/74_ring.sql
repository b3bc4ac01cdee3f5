-- The ring of segments: moving on, draining, reclaiming; what a token is told afterwards, and a reader with an older snapshot.
\ir prelude.psql

SELECT plan(36);
SELECT baton.create_queue('q', segments => 3, segment_bytes => 65536, lease => '30 s', backoff => '0') \gset
SELECT current_database() AS database, current_database() AS gid \gset
CREATE FUNCTION ring() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(state, ' ' ORDER BY segment) FROM baton.segments WHERE queue = 'q' $$;
CREATE FUNCTION fill(n integer) RETURNS bigint LANGUAGE sql AS $$ SELECT count(e.id) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(repeat('x', 400) || i) FROM generate_series(1, n) i)) e $$;
-- tries to reclaim until the ring is as wanted, for half a minute at most: other sessions' locks and snapshots come and go
CREATE PROCEDURE reclaim(wanted text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1500 LOOP
        PERFORM baton_internal.rotate('q');
        COMMIT;
        EXIT WHEN ring() ~ wanted;
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;

SELECT is(ring(), 'empty empty empty', 'a new queue');
SELECT fill(1) \g /dev/null
SELECT is(ring(), 'writing empty empty', 'the first is written');
SELECT hold('first', 'q', '10 s') \g /dev/null
SELECT epoch AS epoch0 FROM baton.segments WHERE queue = 'q' AND segment = 0 \gset
SELECT fill(300) \g /dev/null
SELECT fill(1) \g /dev/null
SELECT is(ring(), 'draining writing empty', 'over its size: the next');
SELECT fill(300) \g /dev/null
SELECT fill(300) \g /dev/null
SELECT fill(300) \g /dev/null
SELECT is(ring(), 'draining draining writing', 'none is empty: the last one grows');
SELECT is((SELECT unsettled::int FROM baton.segments WHERE queue = 'q' AND segment = 2) > 300, true, 'beyond its size');
SELECT is(baton.backlog('q')::int, 1202, 'all messages are there');
SELECT is((SELECT count(*)::int FROM (SELECT id, row_number() OVER () AS n FROM baton.claim('q', max_items => 500)) c WHERE c.id <> c.n + 1), 0, 'handed out in order, segment by segment');
SELECT baton.fence('q') \g /dev/null
SELECT fill(1) \g /dev/null
SELECT hold('live', 'q', '10 s') \g /dev/null

-- drained, but not yet to be reclaimed: a lease that its token was told runs on
SELECT count(*) FROM baton.take('q', 10000) \g /dev/null
SELECT is(baton.ack(tok('live')), 'acked', 'the last one is settled');
SELECT is(ring() ~ '^(drained|empty) (drained|empty) writing$', true, 'drained');
SELECT baton_internal.rotate('q') \g /dev/null
SELECT baton_internal.rotate('q') \g /dev/null
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('live')], '{ack}')), 'already_settled', 'while its lease runs it is not reclaimed, and its token is told what happened');
SET pg_baton.clock_offset = 100000;
CALL reclaim('^empty');
SELECT is(split_part(ring(), ' ', 1), 'empty', 'reclaimed, after the end of its leases');
SELECT cmp_ok((SELECT epoch FROM baton.segments WHERE queue = 'q' AND segment = 0), '>', :'epoch0'::bigint, 'in a new epoch');
SELECT is((SELECT messages_size FROM baton.segments WHERE queue = 'q' AND segment = 0) IN ('0 bytes', '8192 bytes', '16 kB'), true, 'its space is given back');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('live')], '{ack}')), 'stale_epoch', 'now its token is told that it is too long ago to say more');
SELECT alike(error_of($$SELECT baton.ack(tok('live'))$$), '%settled, too long ago to say more.%', 'in words');
RESET pg_baton.clock_offset;
SELECT is((SELECT obstacle FROM baton.explain_message('q', (h('live')).id)), 'not_found', 'and so is who asks after the message');

-- around the ring
SELECT fill(300) \g /dev/null
SELECT fill(300) \g /dev/null
SELECT is(ring() ~ 'writing', true, 'it writes on');
SELECT is(baton.backlog('q')::int, 600, 'nothing is lost');
SELECT hold('again', 'q') \g /dev/null
SELECT cmp_ok((h('again')).fence & 4294967295, '=', 1::bigint, 'a new message');
SELECT is(baton.ack(tok('again')), 'acked', 'with a token that works');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10000)), 599, 'handed out');

-- what holds a segment up: work in it
SELECT baton.create_queue('held up', segments => 2, segment_bytes => 65536) \gset
SELECT count(*) FROM baton.enqueue_batch('held up', ARRAY(SELECT to_jsonb(repeat('x', 400) || i) FROM generate_series(1, 300) i)) \g /dev/null
SELECT FROM baton.enqueue('held up', '1');
SELECT hold('h', 'held up', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('held up', 10000) \g /dev/null
SET pg_baton.clock_offset = 600000;
SELECT is(baton_internal.rotate('held up'), 0, 'a live claim holds its segment');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('h')], '{ack}')), 'acked', 'as long as that is');
RESET pg_baton.clock_offset;
SELECT is((SELECT count(*)::int FROM baton_internal.map_slots(segment('held up')::regclass) WHERE resolved <> 'gone'), 0, 'drained');

-- a reader whose snapshot is older than the truncation gets an error, no silent hole
SELECT segment('held up') AS seg \gset
SELECT is_empty(format('SELECT id FROM %s', :'seg'), 'to a new snapshot it is empty');
\setenv PGTAP_DATABASE :database
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 \g /dev/null
\set truncated `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SET pg_baton.clock_offset = 8000000" -c "SELECT baton_internal.rotate('held up')" 2>&1 | tail -n 1`
SELECT head_of(format('SELECT count(*) FROM %s', :'seg')) AS answer \gset
COMMIT;
SELECT is(:'truncated'::text || ' ' || left(:'answer'::text, 5) IN ('0 no er', '1 40001', '1 no er'), true, 'held by the snapshot, or refused to it');

-- dumps: what a snapshot sees is not truncated from under it (a queue of its own: one truncation per queue and interval)
SELECT baton.create_queue('dumped', segments => 2, segment_bytes => 65536) \gset
SELECT count(*) FROM baton.enqueue_batch('dumped', ARRAY(SELECT to_jsonb(repeat('x', 400) || i) FROM generate_series(1, 300) i)) \g /dev/null
SELECT FROM baton.enqueue('dumped', '1');
SELECT segment('dumped', 0) AS seg0, segment('dumped', 1) AS seg1 \gset
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 \g /dev/null
\set taken `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SELECT count(*) FROM baton.take('dumped', 10000)"`
\set truncated `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SET pg_baton.clock_offset = 8000000" -c "SELECT baton_internal.rotate('dumped')" 2>&1 | tail -n 1`
SELECT (SELECT count(*) FROM :seg0) + (SELECT count(*) FROM :seg1) AS rows \gset
COMMIT;
SELECT is(:'taken'::int, 301, 'all are settled after the snapshot was taken, and before it looks');
SELECT is(:'truncated'::text, '0'::text, 'nothing is truncated under it');
SELECT is(:'rows'::int, 301, 'it sees their rows');
CREATE PROCEDURE until_truncated() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1500 LOOP
        PERFORM baton_internal.rotate('dumped');
        COMMIT;
        EXIT WHEN EXISTS (SELECT FROM baton.segments WHERE queue = 'dumped' AND segment = 0 AND state = 'empty');
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;
SET pg_baton.clock_offset = 8000000;
CALL until_truncated();
RESET pg_baton.clock_offset;
SELECT is((SELECT state FROM baton.segments WHERE queue = 'dumped' AND segment = 0), 'empty', 'when it is gone, it is');

-- the whole ring by hand
SELECT lives_ok('SELECT baton_internal.sweep(''q'')', 'swept');
CALL baton.maintain('q');
SELECT is(baton.backlog('q'), 0::float8, 'maintained: empty');
SELECT sound('q');
SELECT sound('held up');
SELECT sound('dumped');
SELECT ok(baton.drop_queue('q') AND baton.drop_queue('held up') AND baton.drop_queue('dumped'), 'dropped');
SELECT * FROM finish();
