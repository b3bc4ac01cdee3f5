-- Claims that keep an old segment: they move to the long segments, which all queues share, and their tokens go on working as
-- if nothing had happened; when they are over, the messages go back to their queue. Nothing is counted twice.
\ir prelude.psql

SELECT plan(91);
SELECT baton.create_queue('q', segments => 2, segment_bytes => 65536, lease => '30 s', backoff => '0', max_attempts => 3) \gset
SELECT baton.create_queue('other', segments => 2, segment_bytes => 65536) \gset
CREATE FUNCTION fill(queue text, n integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(e.id) FROM baton.enqueue_batch(queue, array_fill(to_jsonb(repeat('x', 700)), ARRAY[n])) e $$;
CREATE FUNCTION ring(queue text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(state, ' ' ORDER BY segment) FROM baton.segments s WHERE s.queue = ring.queue $$;
CREATE VIEW long_slot AS SELECT t, s.* FROM (VALUES (0), (1)) v (t), LATERAL baton_internal.map_slots(('baton_data.long_' || t)::regclass) s;
CREATE FUNCTION in_long(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM long_slot s JOIN baton_internal.queue q ON q.name = in_long.queue AND q.id = s.key_hash WHERE s.resolved <> 'gone' $$;
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
-- n claims that are left in a full segment of which all else is settled; the ring has no other empty segment
CREATE PROCEDURE make_long(queue text, n integer, lease interval = '1 h') LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fill(queue, 300);
    COMMIT;
    PERFORM fill(queue, 20);
    COMMIT;
    INSERT INTO held SELECT queue || row_number() OVER (ORDER BY c.id), c FROM baton.claim(queue, 'w', n, lease) c
    ON CONFLICT ON CONSTRAINT held_pkey DO UPDATE SET d = excluded.d;
    COMMIT;
    PERFORM count(*) FROM baton.take(queue, 1000);
    COMMIT;
    CALL until(queue, format('in_long(%L) >= %s', queue, n));
END $$;
CREATE FUNCTION settle1(token text, verdict text = 'ack') RETURNS text LANGUAGE sql AS $$ SELECT outcome FROM baton.settle(ARRAY[token], ARRAY[verdict]) $$;

-- they move
CALL make_long('q', 10);
SELECT is(in_long('q'), 10, 'ten claims are in a long segment');
SELECT is((SELECT count(*) FROM baton_internal.map_slots(segment('q')::regclass) WHERE resolved <> 'gone'), 0, 'and nothing is left in their own');
SELECT is((SELECT count(DISTINCT lane) > 3 AND min(lane) > 0 FROM long_slot), true, 'in lanes by message, so that one is found in a page or two');
SELECT is((SELECT count(*) FROM baton_queue.q), 10, 'the view shows each once');
SELECT is((SELECT count(*) FROM baton_queue.q v JOIN held ON (d).id = v.id AND (d).lease_until = v.lease_until WHERE v.state = 'claimed' AND v.worker = 'w' AND v.generation = 1 AND v.failures = 0), 10, 'as they were');
SELECT is((SELECT claimed::text || ' ' || ready || ' ' || scheduled FROM baton.queue_stats WHERE queue = 'q'), '10 0 0', 'queue_stats counts each once');
SELECT is((SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || min(worker) FROM baton.in_flight WHERE queue = 'q'), '10 10 w', 'so does in_flight');
SELECT is(baton.backlog('q'), 10::float8, 'and backlog');
SELECT is((SELECT obstacle || ' ' || split_part(detail, ' since', 1) FROM baton.explain_message('q', (h('q1')).id)), 'claimed claim 1, held by w', 'explain_message finds it');
SELECT is_empty($$SELECT * FROM baton.claim('q')$$, 'nobody else can claim it');
SELECT sound('q');

-- and their tokens work
SELECT ok(baton.start(tok('q1')) = (h('q1')).lease_until, 'start');
SELECT is((SELECT running IS NOT NULL FROM baton.in_flight WHERE id = (h('q1')).id), true, 'is seen');
SELECT ok(baton.extend(tok('q1'), '2 h') > (h('q1')).lease_until + interval '59 min', 'extend');
SELECT is((SELECT lease_until > (h('q1')).lease_until + interval '59 min' FROM baton_queue.q WHERE id = (h('q1')).id), true, 'is seen');
SELECT is(baton.ack(tok('q1')), 'acked', 'ack');
SELECT is(state_of('q', (h('q1')).id), 'gone', 'it is settled');
SELECT is(settle1(tok('q1')), 'already_settled', 'and says so to its token');
SELECT is(head_of($$SELECT baton.ack(tok('q1'))$$), 'QB003: ack refused: the message was settled before', 'in words');
BEGIN;
SELECT is(baton.ack(tok('q2')), 'acked', 'an ack');
SELECT is(state_of('q', (h('q2')).id), 'gone', 'joins the transaction');
ROLLBACK;
SELECT is(state_of('q', (h('q2')).id), 'claimed', 'and is rolled back with it');
SELECT is(baton.ack(tok('q2')), 'acked', 'then it is acknowledged');
SELECT is(baton.quarantine(tok('q3'), 'bad'), 'quarantined', 'quarantine');
SELECT is((SELECT id || ' ' || reason || ' ' || worker || ' ' || generation FROM baton.quarantined('q')), (h('q3')).id || ' bad w 1', 'with its evidence');
SELECT is(settle1(tok('q3')), 'already_settled', 'once');
SELECT results_eq($$SELECT state, not_before IS NULL, failures FROM baton.release(tok('q4'), reason => 'no')$$, $$VALUES ('ready', true, 1)$$, 'release');
SELECT is(state_of('q', (h('q4')).id), 'ready', 'is ready again');
SELECT is((SELECT count(*) FROM long_slot WHERE id = (h('q4')).id AND resolved <> 'gone'), 0, 'in its queue');
SELECT is(settle1(tok('q4')), 'already_settled', 'its token is told');
SELECT is((SELECT count(*) FROM baton.evidence('q', (h('q4')).id)), 1, 'with its evidence');
SELECT is((SELECT id || ' ' || generation || ' ' || failures FROM baton.claim('q', 'x', 10)), (h('q4')).id || ' 2 1', 'and is claimed');
SELECT is(settle1(tok('q4')), 'already_settled', 'the first token still hears of its own settlement');
SELECT is((SELECT state FROM baton.release(tok('q5'), '20 s')), 'scheduled', 'release with a delay');
SELECT is((SELECT state || ' ' || failures FROM baton_queue.q WHERE id = (h('q5')).id), 'scheduled 1', 'waits');
SELECT is((SELECT state FROM baton.release(tok('q6'), '1 d', failed => false)), 'scheduled', 'with a long one');
SELECT is((SELECT state || ' ' || failures FROM baton_queue.q WHERE id = (h('q6')).id), 'scheduled 0', 'waits, too');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('q7')])), 'handed_back', 'hand_back');
SELECT is((SELECT state || ' ' || failures || ' ' || generation FROM baton_queue.q WHERE id = (h('q7')).id), 'ready 0 1', 'ready');
SELECT is(settle1(tok('q7')), 'already_settled', 'its token is told');
BEGIN;
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('q8')])), 'handed_back', 'hand_back acts at once');
ROLLBACK;
SELECT is(state_of('q', (h('q8')).id), 'ready', 'and is not undone');
SELECT is(in_long('q'), 3, 'it waits in the long segment for the mover');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('q1'), tok('q9'), 'b1x', tok('q4')], '{ack,ack,ack,ack}') WHERE ord = 2), 'acked', 'one of a batch');
SELECT sound('q');
CALL until('q', 'in_long(''q'') = 1');
SELECT is(in_long('q'), 1, 'the mover has brought it back');
SELECT is((SELECT count(*) FROM baton.take('q', 10) t WHERE t.id IN ((h('q7')).id, (h('q8')).id)), 2, 'both are taken');
SELECT is(settle1(tok('q8')), 'lease_expired', 'its token is refused');

-- a lease that ends there
SET pg_baton.clock_offset = '61 min';
SELECT is(state_of('q', (h('q10')).id), 'ready', 'its lease is over');
SELECT is(settle1(tok('q10')), 'lease_expired', 'its token hears so');
SELECT is(head_of($$SELECT baton.extend(tok('q10'))$$), 'QB002: extend refused: the lease ended before the verb was called', 'in words');
SELECT is(baton.backlog('q'), 3::float8, 'to be claimed');
CALL until('q', 'in_long(''q'') = 0');
SELECT is((SELECT string_agg(id || ' ' || generation || ' ' || failures, ', ' ORDER BY id) FROM baton.claim('q', 'y', 100) c WHERE id = (h('q10')).id), (h('q10')).id || ' 2 1', 'back in its queue, with the failure counted, and claimed');
SELECT is(settle1(tok('q10')), 'lease_expired', 'the first token is refused');
SELECT is((SELECT fence > (h('q10')).fence FROM (SELECT ((s.epoch << 32) | 2) AS fence FROM baton.segments s WHERE s.queue = 'q' AND state = 'writing') f), true, 'under a greater fence');
SELECT sound('q');
RESET pg_baton.clock_offset;

-- without a mover
CALL make_long('other', 3, '10 min');
SELECT is(in_long('other'), 3, 'three of another queue');
SET pg_baton.clock_offset = '11 min';
SELECT is((SELECT count(*) FROM baton.claim('other', 'z', 10)), 0, 'a claim that comes up short');
SELECT is(in_long('other'), 0, 'brings them back itself');
SELECT is((SELECT string_agg(id || ' ' || failures, ' ' ORDER BY id) FROM baton.claim('other', 'z', 10)), (SELECT string_agg((d).id || ' 1', ' ' ORDER BY (d).id) FROM held WHERE name LIKE 'other%'), 'and the next one gets them');
RESET pg_baton.clock_offset;
SELECT sound('other');

-- the last failure
SELECT baton.create_queue('strict', segments => 2, segment_bytes => 65536, max_attempts => 1) \gset
CALL make_long('strict', 2, '10 min');
SET pg_baton.clock_offset = '11 min';
CALL until('strict', 'in_long(''strict'') = 0');
SELECT is((SELECT string_agg(id || ' ' || cause || ' ' || failures || ' ' || worker, ', ' ORDER BY id) FROM baton.quarantined('strict')), (SELECT string_agg((d).id || ' max_attempts 1 w', ', ' ORDER BY (d).id) FROM held WHERE name LIKE 'strict%'), 'used up: into quarantine, with who had it');
RESET pg_baton.clock_offset;
SELECT sound('strict');

-- fence, pause
SELECT baton.create_queue('fenced', segments => 2, segment_bytes => 65536) \gset
CALL make_long('fenced', 3);
SELECT baton.pause('fenced') \g /dev/null
SELECT is(settle1(tok('fenced1')), 'acked', 'settling goes on while the queue is paused');
SELECT is(baton.fence('fenced'), 2, 'fence ends the others');
SELECT is(settle1(tok('fenced2')), 'stale_epoch', 'their tokens are refused');
SELECT is((SELECT string_agg(state || ' ' || failures, ',') FROM baton_queue.fenced), 'ready 0,ready 0', 'they are ready, and no failure counted');
SELECT baton.resume('fenced') \g /dev/null
CALL until('fenced', 'in_long(''fenced'') = 0');
SELECT is((SELECT string_agg(id || ' ' || generation, ',' ORDER BY id) FROM baton.claim('fenced', 'w', 10)), (SELECT string_agg((d).id || ' 2', ',' ORDER BY (d).id) FROM held WHERE name IN ('fenced2', 'fenced3')), 'and claimed again');
SELECT sound('fenced');

-- privileges, and who sees what
SELECT baton.create_queue('private', segments => 2, segment_bytes => 65536) \gset
CALL make_long('private', 2);
DROP ROLE IF EXISTS baton_test_long;
CREATE ROLE baton_test_long;
SELECT is(value_as('baton_test_long', $$SELECT count(*) FROM baton.in_flight$$), '0', 'who may not look at the queue sees none of its claims');
SELECT is(value_as('baton_test_long', format('SELECT outcome FROM baton.settle(ARRAY[%L], ''{ack}'')', tok('private1'))), 'forbidden', 'nor may he settle them');
GRANT SELECT, UPDATE ON baton_queue.private TO baton_test_long;
SELECT is(value_as('baton_test_long', $$SELECT string_agg(queue, ' ') FROM baton.in_flight$$), 'private private', 'who may look sees them');
SELECT is(value_as('baton_test_long', $$SELECT count(*) FROM baton_queue.private$$), '2', 'in the view, too');
SELECT is(value_as('baton_test_long', format('SELECT outcome FROM baton.settle(ARRAY[%L], ''{release}'')', tok('private1'))), 'scheduled', 'and who may settle does');
SELECT is(value_as('baton_test_long', format('SELECT baton.ack(%L)', tok('private2'))), 'acked', 'ack, too');
DROP OWNED BY baton_test_long;
DROP ROLE baton_test_long;

-- dropped with its queue
SELECT baton.create_queue('dropped', segments => 2, segment_bytes => 65536) \gset
CALL make_long('dropped', 4);
SELECT is(in_long('dropped'), 4, 'of a queue that is dropped');
SELECT (SELECT id FROM baton_internal.queue WHERE name = 'dropped') AS dropped \gset
SELECT alike(error_of($$SELECT baton.drop_queue('dropped')$$), '55000: queue "dropped" is not empty%4 unsettled%', 'they keep the queue from being dropped');
SELECT ok(baton.drop_queue('dropped', discard => true), 'until it is discarded');
SELECT is((SELECT count(*) FROM baton_data.long_0 WHERE queue_id = :dropped) + (SELECT count(*) FROM baton_data.long_1 WHERE queue_id = :dropped), 0, 'their rows are gone');
SELECT is((SELECT count(*) FROM long_slot WHERE key_hash = :dropped AND resolved <> 'gone'), 0, 'and their slots are settled');
SELECT is(settle1(tok('dropped1')), 'stale_epoch', 'their tokens are refused');

-- messages that expire: a live claim goes on, and afterwards they are expired and not ready
SELECT baton.create_queue('mortal', segments => 2, segment_bytes => 65536, backoff => '0') \gset
SELECT count(*) FROM baton.enqueue_batch('mortal', '{1,2,3,4,5}', expires_ats => ARRAY[clock_timestamp() + '10 min']) \g /dev/null
INSERT INTO held SELECT 'mortal' || row_number() OVER (ORDER BY c.id), c FROM baton.claim('mortal', 'w', 5, '1 h') c;
CALL make_long('mortal', 1);
SELECT is(in_long('mortal'), 6, 'claims of messages that expire move as well');
SELECT (h('mortal5')).id AS last \gset
SET pg_baton.clock_offset = 601000;
CALL baton.maintain('mortal');
SELECT is(in_long('mortal'), 6, 'and live on when their time has come');
SELECT is(settle1(tok('mortal2')), 'acked', 'acknowledged');
SELECT is((SELECT state FROM baton.release(tok('mortal3'), '0')), 'expired', 'released: over');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('mortal4')])), 'handed_back', 'handed back');
SELECT is((SELECT ready || ' ' || expired FROM baton.queue_stats WHERE queue = 'mortal'), '0 1', 'that one is not ready');
SET pg_baton.clock_offset = 3601000;
CALL baton.maintain('mortal');
SELECT is((SELECT count(*) FROM baton_queue.mortal WHERE expires_at IS NOT NULL), 0, 'at the end of the lease the last one is gone');
SELECT is(state_of('mortal', :last), 'gone', 'as it should');
RESET pg_baton.clock_offset;
SELECT sound('mortal');

-- one bad token in a batch
SELECT is((SELECT string_agg(outcome, ' ' ORDER BY ord) FROM baton.settle(ARRAY[tok('q1'), tok('private1'), tok('dropped1'), tok('strict1'), NULL], '{ack,ack,ack,ack,ack}')),
    'already_settled already_settled stale_epoch already_settled invalid_token', 'each of a batch gets its own answer');
SELECT baton.drop_queue(name, discard => true) FROM baton.queues \g /dev/null
SELECT * FROM finish();
