-- What there is to look at: queues, queue_stats, queue_counters, in_flight, segments, health, backlog, describe_queue.
\ir prelude.psql

SELECT plan(58);
SELECT views_are('baton', '{queues,queue_stats,queue_counters,in_flight,segments,health,horizon,audit}', 'the views');
SELECT is_empty('SELECT * FROM baton.queues UNION ALL SELECT queue, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM baton.queue_stats', 'no queues');
SELECT is_empty('SELECT queue FROM baton.in_flight UNION ALL SELECT queue FROM baton.segments UNION ALL SELECT queue FROM baton.queue_counters', 'and nothing in them');
SELECT isnt_empty('SELECT * FROM baton.health', 'health has something to say all the same');
SELECT baton.create_queue('q', backoff => '0', lease => '30 s') \gset
SELECT baton.create_queue('empty', durability => 'async', max_attempts => 7) \gset

-- queues
SELECT is((SELECT string_agg(concat_ws(' ', name, owner, state, durability, lease, max_attempts, segments), ', ') FROM baton.queues), replace('empty $ active async 00:00:30 7 3, q $ active local 00:00:30 20 3', '$', current_user), 'queues, by name');
SELECT ok(size ~ '^\d+ (bytes|kB|MB)$' AND created_at BETWEEN now() - '1 min'::interval AND now() + '2 s', 'with size and age') FROM baton.queues WHERE name = 'q';

-- queue_stats: exact
SELECT put('q', 10) AS first \gset
SELECT FROM baton.enqueue_batch('q', '{1,2,3}', delays => '{50 s}');
SELECT hold('a' || i, 'q') FROM generate_series(1, 5) i \g /dev/null
SELECT baton.ack(tok('a1')) \g /dev/null
SELECT baton.quarantine(tok('a2')) \g /dev/null
SELECT state FROM baton.release(tok('a3'), '50 s') \g /dev/null
SELECT baton.start(tok('a4')) \g /dev/null
SELECT row_eq($$SELECT ready, scheduled, claimed, settling, quarantined, waiting FROM baton.queue_stats WHERE queue = 'q'$$, ROW(5::bigint, 4::bigint, 2::bigint, 0::bigint, 1::bigint, 0), 'counts by state');
SELECT row_eq($$SELECT ready, scheduled, claimed, settling, quarantined, oldest_ready, waiting FROM baton.queue_stats WHERE queue = 'empty'$$, ROW(0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::interval, 0), 'zeros, and no age, for an empty one');
SELECT ok(oldest_ready BETWEEN '0' AND '1 min', 'age of the oldest') FROM baton.queue_stats WHERE queue = 'q';
SELECT is(ready + scheduled + claimed + settling, (SELECT count(*) FROM baton_queue.q), 'as many as the view shows') FROM baton.queue_stats WHERE queue = 'q';
SELECT is((SELECT not_started FROM baton.queue_stats WHERE queue = 'q'), 1, 'one of the two claims is started');
SELECT is(baton.backlog('q'), 7::float8, 'backlog: ready and claimed, not what is scheduled');
SELECT is(baton.backlog('empty'), 0::float8, 'never null');
SET pg_baton.clock_offset = 31000;
SELECT row_eq($$SELECT ready, claimed FROM baton.queue_stats WHERE queue = 'q'$$, ROW(7::bigint, 0::bigint), 'a lease that is over counts as ready');
SELECT is(baton.backlog('q'), 7::float8, 'the backlog is the same');
RESET pg_baton.clock_offset;
BEGIN;
SELECT put('q', 2) AS own \gset
SELECT baton.ack(tok('a5')) \g /dev/null
SELECT row_eq($$SELECT ready, claimed, settling FROM baton.queue_stats WHERE queue = 'q'$$, ROW(5::bigint, 1::bigint, 1::bigint), 'what is not committed is not ready, what is being settled is told apart');
SELECT is(baton.backlog('q'), 7::float8, 'not yet more, nor less');
ROLLBACK;

-- queue_counters: what happened
SELECT row_eq($$SELECT claimed, acked, released, quarantined, fenced FROM baton.queue_counters WHERE queue = 'q'$$, ROW(5::bigint, 2::bigint, 1::bigint, 1::bigint, 0::bigint), 'counters');
SELECT head_of($$SELECT baton.ack(tok('a1'))$$) \g /dev/null
SELECT is(fenced, 1::bigint, 'a refusal') FROM baton.queue_counters WHERE queue = 'q';
SET pg_baton.clock_offset = 31000;
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
RESET pg_baton.clock_offset;
SELECT row_eq($$SELECT claimed, expired_leases FROM baton.queue_counters WHERE queue = 'q'$$, ROW(12::bigint, 2::bigint), 'expired leases are counted when they are found');
SELECT row_eq($$SELECT enqueued, claimed, acked, released, quarantined, expired_leases, fenced FROM baton.queue_counters WHERE queue = 'empty'$$, ROW(0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint), 'zeros for an empty one');
SELECT baton.fence('q') \g /dev/null

-- in_flight
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q', 3) AS first \gset
SELECT hold('f', 'q', '10 s', 'w1') \g /dev/null
SELECT hold('g', 'q', '20 s', 'w2') \g /dev/null
SELECT baton.start(tok('g')) \g /dev/null
SELECT results_eq('SELECT id, state, worker, running IS NOT NULL, generation, failures FROM baton.in_flight ORDER BY id', format($$VALUES (%s::bigint, 'claimed', 'w1', false, 1::bigint, 0), (%s, 'claimed', 'w2', true, 1, 0)$$, :first, :first + 1), 'who holds what, started or not');
SELECT ok(held BETWEEN '0' AND '5 s' AND lease_left BETWEEN '5 s' AND '10 s', 'for how long') FROM baton.in_flight WHERE worker = 'w1';
SELECT columns_are('baton', 'in_flight', '{queue,id,state,worker,held,running,lease_left,generation,failures,not_started,session_bound}', 'and no payload');
SET pg_baton.clock_offset = 15000;
SELECT is((SELECT string_agg(worker, ',') FROM baton.in_flight), 'w2', 'a lease that is over holds nothing');
RESET pg_baton.clock_offset;
SELECT baton.ack_batch(ARRAY[tok('f'), tok('g')]) \g /dev/null
SELECT is_empty('SELECT * FROM baton.in_flight', 'settled: no longer');

-- segments
SELECT is((SELECT count(*)::int FROM baton.segments WHERE queue = 'q'), 3, 'three segments');
SELECT row_eq($$SELECT segment, state, unsettled FROM baton.segments WHERE queue = 'q' AND state <> 'empty'$$, ROW(0, 'writing'::text, 5::bigint), 'one is written');
SELECT is((SELECT string_agg(DISTINCT state, ',') FROM baton.segments WHERE queue = 'empty'), 'empty', 'all of an empty queue''s are empty');
SELECT ok(messages_size ~ 'bytes|kB|MB' AND map_size ~ 'bytes|kB|MB' AND epoch > 0, 'sizes and epoch') FROM baton.segments WHERE queue = 'q' AND segment = 0;
SELECT is((SELECT count(DISTINCT epoch)::int FROM baton.segments), 6, 'no two segments have an epoch in common');
SELECT baton.create_queue('ring', segments => 3, segment_bytes => 65536) \gset
SELECT count(*) FROM generate_series(1, 6) i, baton.enqueue_batch('ring', ARRAY(SELECT to_jsonb(repeat('x', 300) || i) FROM generate_series(1, 100))) \g /dev/null
SELECT cmp_ok((SELECT count(*)::int FROM baton.segments WHERE queue = 'ring' AND state IN ('writing', 'draining')), '>', 1, 'it moves on when a segment is over its size');
SELECT is((SELECT count(*)::int FROM baton.segments WHERE queue = 'ring' AND state = 'writing'), 1, 'one is written at a time');
SELECT is((SELECT sum(unsettled)::int FROM baton.segments WHERE queue = 'ring'), 600, 'all messages are in them');
SELECT count(*) FROM baton.take('ring', 10000) \g /dev/null
SELECT is((SELECT string_agg(DISTINCT state, ',' ORDER BY state) FROM baton.segments WHERE queue = 'ring' AND segment = 0) IN ('drained', 'empty', 'writing'), true, 'drained when all is settled');
SELECT is((SELECT sum(unsettled)::int FROM baton.segments WHERE queue = 'ring'), 0, 'nothing unsettled');

-- describe_queue
SELECT is((SELECT count(*)::int FROM baton.describe_queue('q')), 27, 'every option');
SELECT is((SELECT value FROM baton.describe_queue('empty') WHERE option = 'durability'), 'async', 'with its value');

-- health
SELECT bag_has($$SELECT item FROM baton.health$$, $$VALUES ('version'), ('switches'), ('launcher'), ('mover'), ('retention'), ('queues'), ('horizon'), ('prepared transactions'), ('space'), ('rotation'), ('transaction ids')$$, 'one line per subject');
SELECT is_empty($$SELECT * FROM baton.health WHERE state NOT IN ('ok', 'warning', 'error') OR detail IS NULL$$, 'ok, warning or error, and a detail');
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'version'), 'ok, ' || (SELECT extversion FROM pg_extension WHERE extname = 'pg_baton'), 'version');
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'switches'), 'ok, pg_baton.enabled = on, pg_baton.claims = on', 'switches');
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'queues'), 'ok, 3 you may look at', 'queues');
SELECT baton.pause('empty') \g /dev/null
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'queues'), 'warning, 3 you may look at; paused: empty', 'a paused queue');
SELECT baton.resume('empty') \g /dev/null
CREATE PUBLICATION p FOR TABLES IN SCHEMA baton_data;
SELECT is((SELECT state || ', ' || detail FROM baton.health WHERE item = 'publication'), 'error, published for deletes without replica identity, so settling is refused: empty, q, ring', 'a publication that stops settlements');
SELECT put('q') AS first \gset
SELECT hold('p', 'q') \g /dev/null
SELECT alike(head_of($$SELECT baton.ack(tok('p'))$$), '55000: cannot delete from table "q%" because it does not have a replica identity and publishes deletes', 'and so it is');
SELECT is(state_of('q', (h('p')).id), 'claimed', 'refused: nothing has changed');
DROP PUBLICATION p;
SELECT is(baton.ack(tok('p')), 'acked', 'without it it works');
SELECT baton.create_queue('repl', replicable => true) \gset
CREATE PUBLICATION p FOR TABLES IN SCHEMA baton_data WITH (publish = 'insert, delete');
SELECT put('repl') AS first \gset
SELECT is((SELECT count(*)::int FROM baton.take('repl')), 1, 'a replicable queue can be published');
DROP PUBLICATION p;

-- damage in one queue does not hide the others
SELECT baton.create_queue('broken') \gset
SELECT segment('broken', 1) AS seg \gset
DROP TABLE :seg CASCADE;
SELECT is((SELECT count(*)::int FROM baton.queues), 4, 'without the view of a broken queue, the others are there');
SELECT is((SELECT detail FROM baton.health WHERE item = 'views'), 'no view baton_queue.broken: nobody can use the queue (dropped or renamed)', 'health says so');
SELECT isnt_empty('SELECT * FROM baton.queue_stats', 'queue_stats works');
SELECT lives_ok($$SELECT baton.drop_queue('broken', discard => true)$$, 'what is left of it can be dropped');

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
