-- What little is left in a segment that is not written any more is moved, so that the segment can be reclaimed: when it is
-- needed, when it is worth it, and never at the message's expense.
\ir prelude.psql

SELECT plan(50);
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
CREATE FUNCTION fill(queue text, n integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(e.id) FROM baton.enqueue_batch(queue, ARRAY(SELECT to_jsonb(repeat('x', 700) || i) FROM generate_series(1, n) i)) e $$;
CREATE FUNCTION ring(queue text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(state, ' ' ORDER BY segment) FROM baton.segments s WHERE s.queue = ring.queue $$;
CREATE FUNCTION left_in(queue text, segment integer) RETURNS bigint LANGUAGE sql AS $$ SELECT unsettled FROM baton.segments s WHERE s.queue = left_in.queue AND s.segment = left_in.segment $$;
CREATE FUNCTION in_long() RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM (VALUES (0), (1)) v (t), LATERAL baton_internal.map_slots(('baton_data.long_' || t)::regclass) s WHERE s.resolved <> 'gone' $$;
-- Does the workers' work until something is so, for half a minute at most: other sessions' locks and snapshots come and go.
CREATE PROCEDURE until(queue text, condition text) LANGUAGE plpgsql AS $$
DECLARE
    so boolean;
BEGIN
    FOR i IN 1..1500 LOOP
        CALL baton.maintain(queue);
        EXECUTE 'SELECT ' || condition INTO so;
        COMMIT;
        EXIT WHEN so;
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;
-- A few times, where nothing is to happen.
CREATE PROCEDURE for_nothing(queue text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..5 LOOP
        CALL baton.maintain(queue);
    END LOOP;
END $$;

-- ready messages: with their failures, generation and order, and offered first
SELECT baton.create_queue('q', segments => 2, segment_bytes => 65536, backoff => '0', lease => '1 s', retention => '13 h') \gset
SELECT fill('q', 300) \g /dev/null
SELECT fill('q', 10) \g /dev/null
CREATE TABLE survivor AS SELECT row_number() OVER (ORDER BY id) AS n, token, id, enqueued_at, fence, payload FROM baton.claim('q', 'w', 9, '1 h');
SELECT count(*) FROM baton.take('q', 1000) \g /dev/null
SELECT fill('q', 5) \g /dev/null
SELECT is(ring('q'), 'draining writing', 'nine are left in the first of two segments');
-- 1 to 3 released after a failure, 4 later, 5 later still, 6 not failed, 7 handed back; 8 and 9 are still held
SELECT outcome FROM baton.settle((SELECT array_agg(token ORDER BY n) FROM survivor WHERE n < 7), '{release,release,release,release,release,release_unfailed}', '{0 s,0 s,0 s,40 s,50 s,0 s}') \g /dev/null
SELECT outcome FROM baton.hand_back((SELECT array_agg(token) FROM survivor WHERE n = 7)) \g /dev/null
SET pg_baton.clock_offset = '2 s';  -- past the leases of what was taken
CALL until('q', 'left_in(''q'', 0) = 0');
SELECT is(left_in('q', 0), 0, 'they are moved');
SELECT is((SELECT string_agg(id || ' ' || state || ' ' || failures || ' ' || generation, ', ' ORDER BY id) FROM baton_queue.q WHERE id <= (SELECT max(id) FROM survivor)),
    (SELECT string_agg(id || ' ' || CASE WHEN n < 4 THEN 'ready 1' WHEN n < 6 THEN 'scheduled 1' WHEN n < 8 THEN 'ready 0' ELSE 'claimed 0' END || ' 1', ', ' ORDER BY id) FROM survivor), 'each as it was');
SELECT is((SELECT count(*) FROM baton_queue.q v JOIN survivor s USING (id, enqueued_at, payload)), 9, 'to the byte');
SELECT is((SELECT count(*) FROM baton_queue.q), 14, 'and once');
SELECT is(in_long(), 2, 'the claims went to the long segment');
SELECT sound('q');
CALL until('q', 'ring(''q'') = ''empty writing''');
SELECT is(ring('q'), 'empty writing', 'and the segment is reclaimed');
SELECT is((SELECT pg_table_size(segment('q')::regclass) <= 16384 AND pg_indexes_size(segment('q')::regclass) <= 16384), true, 'table, TOAST and map');
SELECT is((SELECT outcome FROM survivor, LATERAL baton.settle(ARRAY[token], '{ack}') WHERE n = 1), 'stale_epoch', 'after that it is too long ago to say more');
SELECT is((SELECT outcome FROM survivor, LATERAL baton.settle(ARRAY[token], '{ack}') WHERE n = 8), 'acked', 'a claim that was moved goes on');
SELECT is((SELECT r.payload FROM survivor s, baton.retained('q', ids => ARRAY[s.id]) r WHERE s.n = 8), (SELECT payload FROM survivor WHERE n = 8), 'and its message is retained from where it is');
SELECT is((SELECT array_agg(id) FROM (SELECT c.id FROM baton.claim('q', 'x', 5) c) c), (SELECT array_agg(id ORDER BY n) FROM survivor WHERE n IN (1, 2, 3, 6, 7)), 'they are handed out in their order, before what was enqueued before they were moved');
SELECT is((SELECT count(*) FROM baton.claim('q', 'x', 100)), 5, 'and then the rest');
SET pg_baton.clock_offset = '51 s';
CREATE TEMP TABLE late AS SELECT * FROM baton.claim('q', 'y', 100, '1 min');
SELECT is((SELECT array_agg(id ORDER BY id) FROM late WHERE id IN (SELECT id FROM survivor WHERE n IN (4, 5))), (SELECT array_agg(id ORDER BY n) FROM survivor WHERE n IN (4, 5)), 'those for later when they are due');
SELECT is((SELECT min(c.fence) > max(s.fence) FROM late c JOIN survivor s USING (id) WHERE s.n IN (4, 5)), true, 'under a greater fence than before');
SELECT is((SELECT string_agg(DISTINCT generation || ' ' || failures, ',') FROM late JOIN survivor USING (id) WHERE n IN (4, 5)), '2 1', 'with what they have been through');
RESET pg_baton.clock_offset;
SELECT sound('q');

-- the fence grows with each move, in whatever order the segments were truncated: the one that was emptied first is the next
SELECT is((SELECT epoch > (SELECT max(fence >> 32) FROM survivor) FROM baton.segments WHERE queue = 'q' AND state = 'writing'), true, 'a segment that is opened later has a greater epoch');
SELECT baton.create_queue('order', segments => 3, segment_bytes => 65536, lease => '1 s') \gset
SELECT fill('order', 300) \g /dev/null
CREATE TEMP TABLE many AS SELECT token FROM baton.claim('order', 'w', 30, '1 h');
SELECT fill('order', 300) \g /dev/null
SELECT fill('order', 300) \g /dev/null
SELECT count(*) FROM baton.take('order', 1000) \g /dev/null
SET pg_baton.clock_offset = '2 s';
CALL until('order', 'ring(''order'') = ''draining empty writing''');
SELECT is(ring('order'), 'draining empty writing', 'the second of three is emptied first');
SELECT baton.ack_batch((SELECT array_agg(token) FROM many)) \g /dev/null
SET pg_baton.clock_offset = '2 h';
CALL until('order', 'ring(''order'') = ''empty empty writing''');
RESET pg_baton.clock_offset;
SELECT fill('order', 300) \g /dev/null
SELECT fill('order', 1) \g /dev/null
SELECT is((SELECT string_agg(state, ' ' ORDER BY epoch) FROM baton.segments WHERE queue = 'order'), 'draining writing empty', 'and written before it');

-- a lease that has ended
SELECT baton.create_queue('lapsed', segments => 2, segment_bytes => 65536, backoff => '0', max_attempts => 2) \gset
SELECT fill('lapsed', 300) \g /dev/null
SELECT fill('lapsed', 10) \g /dev/null
SELECT hold('l1', 'lapsed', '1 s'), hold('l2', 'lapsed', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('lapsed', 1000) \g /dev/null
SELECT baton.pause('lapsed') \g /dev/null
SET pg_baton.clock_offset = '2 s';
CALL until('lapsed', 'left_in(''lapsed'', 0) = 0');
SELECT is((SELECT state || ' ' || failures || ' ' || generation FROM baton_queue.lapsed WHERE id = (h('l1')).id), 'ready 1 1', 'one whose lease has ended: ready, with its failure');
SELECT isnt((SELECT outcome FROM baton.settle(ARRAY[tok('l1')], '{ack}')), 'already_settled', 'its token hears of nobody else''s settlement');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('l1')], '{ack}')), 'lease_expired', 'but that its lease is over');
SELECT sound('lapsed');
RESET pg_baton.clock_offset;
-- and of which that was the last failure
SELECT baton.resume('lapsed') \g /dev/null
SELECT hold('l3', 'lapsed', '1 s') \g /dev/null
SET pg_baton.clock_offset = '4 s';
SELECT count(*) FROM baton.claim('lapsed', 'w', 10) \g /dev/null
SELECT is((SELECT id || ' ' || cause FROM baton.quarantined('lapsed')), (h('l3')).id || ' max_attempts', 'the last failure quarantines, wherever the message is');
RESET pg_baton.clock_offset;

-- when it is not done: 1. the ring has room, unless it has been so for long
SELECT baton.create_queue('room', segments => 3, segment_bytes => 65536) \gset
SELECT fill('room', 300) \g /dev/null
SELECT fill('room', 10) \g /dev/null
SELECT hold('r1', 'room', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('room', 1000) \g /dev/null
CALL for_nothing('room');
SELECT is(ring('room') || left_in('room', 0), 'draining writing empty1', 'a segment is empty: nobody needs the space');

-- 2. too much is left
SELECT baton.create_queue('much', segments => 2, segment_bytes => 65536) \gset
SELECT fill('much', 200) \g /dev/null
SELECT fill('much', 10) \g /dev/null
SELECT count(*) FROM baton.claim('much', 'w', 11, '1 h') \g /dev/null
SELECT count(*) FROM baton.take('much', 1000) \g /dev/null
CALL for_nothing('much');
SELECT is(left_in('much', 0), 11, 'more than one in twenty: it stays');

-- 3. not everything was offered
SELECT baton.create_queue('slow', segments => 2, segment_bytes => 65536, backoff => '0') \gset
SELECT fill('slow', 300) \g /dev/null
SELECT fill('slow', 10) \g /dev/null
SELECT hold('s1', 'slow', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('slow', 298) \g /dev/null
CALL for_nothing('slow');
SELECT is(left_in('slow', 0), 2, 'not before each message there had its turn');

-- 4. a larger backlog would come before it
SELECT count(*) FROM baton.take('slow', 1) \g /dev/null
SELECT state FROM baton.release(tok('s1'), '0 s') \g /dev/null
SELECT baton.pause('slow') \g /dev/null
SELECT fill('slow', 200) \g /dev/null
SET pg_baton.clock_offset = '2 s';
CALL for_nothing('slow');
SELECT is(left_in('slow', 0), 1, 'never behind a larger backlog than the one it leaves');
SELECT baton.resume('slow') \g /dev/null
SELECT is((SELECT id FROM baton.take('slow')), (h('s1')).id, 'it is the next to be claimed where it is');
RESET pg_baton.clock_offset;

-- 5. a row that plain SQL has locked
SELECT baton.create_queue('locked', segments => 2, segment_bytes => 65536) \gset
SELECT fill('locked', 300) \g /dev/null
SELECT fill('locked', 10) \g /dev/null
SELECT hold('k1', 'locked', '1 h'), hold('k2', 'locked', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('locked', 1000) \g /dev/null
SELECT segment('locked') AS seg \gset
BEGIN;
SELECT id FROM :seg WHERE id = (h('k1')).id FOR KEY SHARE \g /dev/null
\set done `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "CALL until('locked', 'left_in(\$\$locked\$\$, 0) = 1')" -c "SELECT left_in('locked', 0)"`
COMMIT;
SELECT is(:'done'::text, '1'::text, 'is not waited for, and the others are moved');
SELECT is((SELECT array_agg(id) FROM baton_internal.map_slots(:'seg'::regclass) WHERE resolved = 'claimed'), ARRAY[(h('k1')).id], 'it stays where it is');
CALL until('locked', 'left_in(''locked'', 0) = 0');
SELECT is(left_in('locked', 0), 0, 'and follows later');
SELECT is(baton.ack_batch(ARRAY[tok('k1'), tok('k2')]), 2, 'both tokens work');
SELECT sound('locked');

-- 6. a snapshot keeps the segment as well: moving would gain nothing, and keep it from being reclaimed by budget
SELECT baton.create_queue('pinned', segments => 2, segment_bytes => 65536) \gset
SELECT fill('pinned', 300) \g /dev/null
SELECT fill('pinned', 10) \g /dev/null
SELECT hold('p1', 'pinned', '1 h') \g /dev/null
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 \g /dev/null
\set done `psql -X -A -t -q -d "$PGTAP_DATABASE" -c "SELECT count(*) FROM baton.take('pinned', 1000)" -c "CALL for_nothing('pinned')" -c "SELECT left_in('pinned', 0)" | tail -1`
COMMIT;
SELECT is(:'done'::text, '1'::text, 'under a pinned horizon nothing is moved');
CALL until('pinned', 'left_in(''pinned'', 0) = 0');
SELECT is(left_in('pinned', 0), 0, 'and when it is gone, it is');

-- 7. rotation is held
SELECT baton.create_queue('held', segments => 2, segment_bytes => 65536) \gset
SELECT fill('held', 300) \g /dev/null
SELECT fill('held', 10) \g /dev/null
SELECT hold('h1', 'held', '1 h') \g /dev/null
SELECT baton.hold_rotation('1 h', 'held') \g /dev/null
SELECT count(*) FROM baton.take('held', 1000) \g /dev/null
CALL for_nothing('held');
SELECT is(left_in('held', 0), 1, 'while rotation is held nothing is moved');
SELECT baton.hold_rotation('0', 'held') \g /dev/null
CALL until('held', 'left_in(''held'', 0) = 0');
SELECT is(left_in('held', 0), 0, 'afterwards it is');

-- 8. volatile: its claims would survive what their messages do not
SELECT baton.create_queue('volatile', segments => 2, segment_bytes => 65536, durability => 'volatile', backoff => '0') \gset
SELECT fill('volatile', 300) \g /dev/null
SELECT fill('volatile', 10) \g /dev/null
SELECT hold('v1', 'volatile', '1 h'), hold('v2', 'volatile', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('volatile', 1000) \g /dev/null
SELECT state FROM baton.release(tok('v2'), '30 s') \g /dev/null
CALL until('volatile', 'left_in(''volatile'', 0) = 1');
SELECT is((SELECT array_agg(id) FROM baton_internal.map_slots(segment('volatile')::regclass) WHERE resolved <> 'gone'), ARRAY[(h('v1')).id], 'a volatile queue''s claims stay, its ready messages move');
SELECT is(baton.ack(tok('v1')), 'acked', 'and are settled there');

-- 9. published for deletes without an identity: not moved, as it could not be settled
SELECT baton.create_queue('published', segments => 2, segment_bytes => 65536) \gset
SELECT fill('published', 300) \g /dev/null
SELECT fill('published', 10) \g /dev/null
SELECT hold('u1', 'published', '1 h') \g /dev/null
CREATE PUBLICATION inserts FOR ALL TABLES WITH (publish = 'insert');
SELECT count(*) FROM baton.take('published', 1000) \g /dev/null
ALTER PUBLICATION inserts SET (publish = 'insert, delete');
CALL for_nothing('published');
SELECT is(left_in('published', 0), 1, 'where its deletion cannot be published, it stays');
DROP PUBLICATION inserts;
CALL until('published', 'left_in(''published'', 0) = 0');
SELECT is(left_in('published', 0), 0, 'until it can');

-- a replicable queue has a key
SELECT baton.create_queue('keyed', segments => 2, segment_bytes => 65536, replicable => true, backoff => '0') \gset
SELECT fill('keyed', 300) \g /dev/null
SELECT fill('keyed', 10) \g /dev/null
SELECT hold('y1', 'keyed', '1 h'), hold('y2', 'keyed', '1 h') \g /dev/null
SELECT count(*) FROM baton.take('keyed', 1000) \g /dev/null
SELECT state FROM baton.release(tok('y2'), '0 s') \g /dev/null
SET pg_baton.clock_offset = '31 s';
CALL until('keyed', 'ring(''keyed'') = ''empty writing''');
SELECT is(ring('keyed'), 'empty writing', 'a replicable queue, too');
SELECT is((SELECT id FROM baton.take('keyed')), (h('y2')).id, 'its message is there');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('y1')], '{ack}')), 'acked', 'and its claim');
RESET pg_baton.clock_offset;
SELECT sound('keyed');

-- a batch with a token of an earlier life of the segment, at the head of its page
SELECT fill('keyed', 300) \g /dev/null
SELECT fill('keyed', 300) \g /dev/null
SELECT array_agg(token) AS tokens FROM (SELECT c.token FROM baton.claim('keyed', 'w', 1000) c JOIN baton_internal.map_slots(segment('keyed')::regclass) s USING (id) WHERE s.block = 1 AND s.idx > 1) c \gset
SELECT is((SELECT string_agg(DISTINCT s.outcome, ' ') FROM baton.settle(ARRAY[tok('y2')] || :'tokens'::text[], '{ack}') s WHERE s.ord > 1), 'acked', 'keeps none of the others on it from being settled');

SELECT baton.drop_queue(name, discard => true) FROM baton.queues \g /dev/null
SELECT is(in_long(), 0, 'with their queues all claims are gone from the long segments');
SELECT * FROM finish();
