-- Retention: acknowledged messages are kept, whole, by the transaction that acknowledges them; and reclaimed when all that
-- lies with them is past its time and nothing else keeps it.
\ir prelude.psql

SELECT plan(81);
-- The clock is set to where a window of retained tables will not end while this runs: all that is kept lies in one table.
SELECT (10800000 - (extract(epoch FROM clock_timestamp() + '13 h') * 1000)::bigint % 21600000 + 21600000) % 21600000 AS base \gset
CREATE FUNCTION set_clock(ms bigint) RETURNS text LANGUAGE sql AS $$ SELECT set_config('pg_baton.clock_offset', ms::text, false) $$;
SELECT set_clock(:base) \g /dev/null
SELECT baton.create_queue('q', retention => '13 h', replay_window => '12 h', backoff => '0') \gset
SELECT (SELECT value FROM baton.describe_queue('q') WHERE option = 'id')::int AS queue_id \gset
CREATE FUNCTION kept(queue text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton.retained(queue) $$;
-- the table in use, and what keeps it
CREATE FUNCTION retained_table() RETURNS text LANGUAGE sql AS $$ SELECT 'baton_data.retained_' || segment FROM baton.segments WHERE state = 'retained' $$;
CREATE FUNCTION kept_by() RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(kept_by, ' \d.*', '') FROM baton.segments WHERE state = 'retained' $$;

-- ---- whole, by every way to acknowledge
SELECT FROM baton.enqueue('q', '{"a": 1}', 'm', 'k', 'c', 5, '{"h": 1}', payload_ref => 'r', expires_at => now() + '1 day');
SELECT hold('a', 'q', worker => 'w1') AS id \gset
SELECT is(kept('q'), NULL, 'a claimed message is not retained');
SELECT is(baton.ack(tok('a')), 'acked', 'ack');
SELECT row_eq($$SELECT id, worker, generation, failures, message_id, routing_key, message_class, priority, headers, payload_ref, payload, payload_bytes FROM baton.retained('q')$$,
    ROW(:id::bigint, 'w1'::text, 1::bigint, 0, 'm'::text, 'k'::text, 'c'::text, 5, '{"h": 1}'::jsonb, 'r'::text, '{"a": 1}'::jsonb, NULL::bytea), 'the whole message');
SELECT ok(settled_at - :base * interval '1 ms' BETWEEN clock_timestamp() - '10 s'::interval AND clock_timestamp() AND drop_at = settled_at + '13 h' AND enqueued_at <= settled_at, 'and its times') FROM baton.retained('q');
SELECT retained_table() AS table \gset
SELECT alike(:'table'::text, 'baton_data.retained\__%', 'in a table of all queues');
SELECT is((SELECT expires_at > now() FROM :table), true, 'its expiry is kept, too');
SELECT is(state_of('q', :id), 'gone', 'not in the view');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'never handed out');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'already_settled', 'its token is answered as ever');
SELECT is(baton.backlog('q')::int, 0, 'it is no backlog');

SELECT put('q', 12) AS first \gset
SELECT is((SELECT baton.ack_batch(array_agg(token)) FROM baton.claim('q', 'w2', 3)), 3, 'ack_batch');
SELECT is(kept('q'), '1 2 3 4', 'all of them');
SELECT hold(x, 'q') FROM unnest('{s1,s2,s3,s4}'::text[]) x \g /dev/null
SELECT is((SELECT string_agg(outcome, ' ' ORDER BY ord) FROM baton.settle(ARRAY[tok('s1'), tok('s2'), tok('s3'), tok('s4'), 'x'], '{ack,release,quarantine,ack,ack}', '{1 h}')), 'acked scheduled quarantined acked invalid_token', 'settle');
SELECT is(kept('q'), '1 2 3 4 5 8', 'only what was acknowledged');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('q', ARRAY(SELECT token FROM baton.claim('q', 'w3', 1)), max_items => 1, worker => 'w4')), 2, 'settle_and_claim');
SELECT is(kept('q'), '1 2 3 4 5 8 9', 'settled, and not what was claimed');
SELECT is((SELECT string_agg(id::text, ' ') FROM baton.take('q', 2)), '11 12', 'take');
SELECT is(kept('q'), '1 2 3 4 5 8 9 11 12', 'taken ones');
SELECT is((SELECT generation FROM baton.retained('q') WHERE id = 12), 1::bigint, 'with their generation');
SELECT is((SELECT string_agg(DISTINCT worker, ' ' ORDER BY worker) FROM baton.retained('q', ids => '{1,2,9}')), 'w1 w2 w3', 'and who did it');
SELECT hold('f', 'q') \g /dev/null
SELECT FROM baton.release(tok('f'), '0');
SELECT hold('f', 'q') \g /dev/null
SELECT is(baton.ack(tok('f')), 'acked', 'after a failure');
SELECT row_eq($$SELECT generation, failures FROM baton.retained('q') WHERE id = 13$$, ROW(2::bigint, 1), 'how often it was tried');
SELECT FROM baton.enqueue_bytes('q', decode(repeat('00ff', 20000), 'hex'));
SELECT FROM baton.enqueue('q', to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i)));
SELECT is((SELECT count(*)::int FROM baton.take('q', 2)), 2, 'large ones');
SELECT is((SELECT md5(payload_bytes) FROM baton.retained('q') WHERE payload_bytes IS NOT NULL), md5(decode(repeat('00ff', 20000), 'hex')), 'bytes');
SELECT is((SELECT max(length(payload #>> '{}')) FROM baton.retained('q')), 64000, 'beyond a page');

SELECT alike((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', 1)), 'settled: acknowledged by w1 at %, retained until %', 'explain_message finds it');

-- ---- in the acknowledging transaction
SELECT put('q', 2) AS first \gset
SELECT hold('t', 'q') AS id \gset
SELECT kept('q') AS before \gset
BEGIN;
SELECT baton.ack(tok('t')) \g /dev/null
SELECT is(kept('q'), :'before' || ' ' || :id, 'seen by its own transaction');
ROLLBACK;
SELECT is(kept('q'), :'before', 'rolled back: nothing is retained');
SELECT is(state_of('q', :id), 'claimed', 'and it is claimed as before');
BEGIN;
SAVEPOINT s;
SELECT baton.ack(tok('t')) \g /dev/null
ROLLBACK TO s;
SELECT is(kept('q'), :'before', 'in a savepoint: nothing');
SELECT is(baton.ack(tok('t')), 'acked', 'and again');
COMMIT;
SELECT is((SELECT count(*)::int FROM baton.retained('q', ids => ARRAY[:id])), 1, 'once');
BEGIN;
SELECT count(*) FROM baton.take('q') \g /dev/null
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.retained('q', ids => ARRAY[:id + 1])), 0, 'a take that was rolled back leaves nothing');

-- ---- other queues
SELECT baton.create_queue('none'), baton.create_queue('volatile', durability => 'volatile', retention => '13 h') \gset
SELECT put('none', 2), put('volatile', 2) \gset
SELECT is((SELECT count(*)::int FROM baton.take('none', 9)), 2, 'without retention');
SELECT is(kept('none'), NULL, 'nothing is kept');
SELECT is((SELECT count(*)::int FROM baton.take('volatile', 9)), 2, 'a volatile queue');
SELECT is(kept('volatile'), '1 2', 'keeps what is acknowledged');
SELECT baton.alter_queue('none', retention => '13 h') \gset
SELECT put('none') \gset
SELECT is((SELECT count(*)::int FROM baton.take('none', 9)), 1, 'with retention');
SELECT is(kept('none'), '3', 'from then on');
SELECT is(head_of($$SELECT baton.alter_queue('none', retention => '11 h')$$), '22023: max_lease must not be above retention', 'shorter than a lease: refused');

-- ---- looking
SELECT settled_at AS third FROM baton.retained('q', ids => '{5}') \gset
SELECT is((SELECT string_agg(id::text, ' ' ORDER BY settled_at, id) FROM baton.retained('q', until_time => :'third')), '1 2 3 4', 'until: before it');
SELECT is((SELECT string_agg(id::text, ' ') FROM baton.retained('q', :'third', max_items => 2)), '5 8', 'from: at it and after; the first ones');
SELECT is((SELECT count(*)::int FROM baton.retained('q', ids => '{}')), 0, 'none of no ids');
SELECT is(head_of($$SELECT * FROM baton.retained('q', '2026-01-02', '2026-01-02')$$), '22023: from_time is not before until_time', 'no time');
SELECT is(head_of($$SELECT * FROM baton.retained('q', max_items => 0)$$), '22023: max_items is out of range', 'max_items');
SELECT is(head_of($$SELECT * FROM baton.retained('nobody')$$), '42704: queue "nobody" does not exist', 'no queue');
CREATE ROLE looker; CREATE ROLE someone; CREATE ROLE monitor IN ROLE pg_monitor;
GRANT SELECT (id, state) ON baton_queue.q TO looker;
SELECT is(value_as('looker', $$SELECT concat_ws(' ', message_id, routing_key, headers, payload, payload_ref) FROM baton.retained('q', ids => '{1}')$$), 'm k', 'without privilege on a column: null');
SELECT is(value_as('monitor', $$SELECT concat_ws(' ', message_id, routing_key, headers, payload, payload_ref) FROM baton.retained('q', ids => '{1}')$$), 'm k', 'so for pg_monitor');
SELECT alike(error_as('someone', $$SELECT FROM baton.retained('q')$$), '42501: permission denied for queue "q"%', 'without any: refused');
BEGIN READ ONLY;
SELECT is(kept('none'), '3', 'in a read-only transaction');
COMMIT;

-- ---- what keeps a table
SELECT put('q') \gset
SELECT count(*) FROM baton.take('q') \g /dev/null
SELECT is(kept_by(), 'replay window of q until', 'the replay window of the message that was put in last, or');
SELECT is((SELECT count(*)::int FROM baton.segments WHERE state = 'retained'), 1, 'one table for all queues');
SELECT is(value_as('looker', $$SELECT count(*) FROM baton.segments WHERE state = 'retained'$$), '0', 'which only those see who may see all');
SELECT is(value_as('monitor', $$SELECT count(*) FROM baton.segments WHERE state = 'retained'$$), '1', 'as pg_monitor');
SELECT is(baton_internal.reclaim_retained(), 0, 'kept');
SELECT is((SELECT kept_by FROM baton.segments WHERE state = 'later'), 'unsettled', 'a bucket of messages that are due later is shown, too');
SELECT set_clock(:base + 45000000) \g /dev/null
SELECT alike((SELECT kept_by FROM baton.segments WHERE state = 'retained'), 'retention of q until %', 'then retention');
SELECT baton.hold('q', 'case 4711') \g /dev/null
SELECT baton.hold_rotation('7 d', 'none') \g /dev/null
SELECT set_clock(:base + 72000000) \g /dev/null
SELECT is(kept_by(), 'hold of q', 'then the hold');
SELECT baton_internal.reclaim_retained(), baton_internal.reclaim_retained(), baton_internal.reclaim_retained() \g /dev/null
SELECT is(array_length(string_to_array(kept('q'), ' '), 1), 14, 'nothing of it goes');
SELECT is(kept('volatile'), '1 2', 'nor of another queue in the same table');
SELECT is((SELECT value FROM baton.describe_queue('q') WHERE option = 'held'), 'case 4711', 'describe_queue says why');
SELECT alike((SELECT detail FROM baton.health WHERE item = 'queues'), '%on hold: q (case 4711)%', 'and health');
SELECT is(error_of($$SELECT baton.hold('q', 'another')$$), E'55000: queue "q" is on hold already\nDETAIL: Its reason is "case 4711".\nHINT: Let baton.unhold end that hold first; then hold the queue for both reasons.', 'held already');
SELECT is(head_of($$SELECT baton.drop_queue('q', discard => true)$$), '55000: queue "q" is on hold', 'it cannot be dropped');
SELECT is(baton.unhold('q', 'settled out of court'), true, 'unhold');
SELECT is(baton.unhold('q'), false, 'once');
SELECT is((SELECT string_agg(concat_ws(' ', action, reason, details), ', ' ORDER BY at) FROM baton.audit WHERE action ~ '^(un)?hold$'), 'hold case 4711, unhold settled out of court {"held": "case 4711"}', 'audited');
SELECT alike((SELECT kept_by FROM baton.segments WHERE state = 'retained'), 'hold_rotation until %', 'then hold_rotation');
SELECT baton_internal.reclaim_retained(), baton_internal.reclaim_retained() \g /dev/null
SELECT isnt(kept('q'), NULL, 'nothing goes');
SELECT baton.hold_rotation('0', 'none') \g /dev/null
-- other sessions' transactions come and go: until it is done, for half a minute at most
CREATE PROCEDURE reclaim() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1500 LOOP
        PERFORM baton_internal.reclaim_retained();
        COMMIT;
        EXIT WHEN kept('q') IS NULL;
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;
CALL reclaim();
SELECT is(concat(kept('q'), kept('none'), kept('volatile')), '', 'then nothing keeps it');
SELECT is((SELECT count(*)::int FROM baton.segments WHERE state = 'retained'), 0, 'the table is empty');
SELECT set_clock(:base) \g /dev/null
SELECT put('q') \gset
SELECT count(*) FROM baton.take('q') \g /dev/null
SELECT isnt(kept('q'), NULL, 'and is used again');

-- ---- dropping
SELECT alike(error_of($$SELECT baton.drop_queue('none')$$), 'no error', 'an empty queue');
SELECT alike(error_of($$SELECT baton.drop_queue('q')$$), '55000: queue "q" is not empty%retained messages.%', 'retained messages are no nothing');
SELECT is(baton.drop_queue('q', discard => true), true, 'unless they are discarded');
SELECT baton.create_queue('q', retention => '13 h') \gset
SELECT is(kept('q'), NULL, 'a queue of the same name does not inherit them');
SELECT alike((SELECT kept_by FROM baton.segments WHERE state = 'retained'), 'retention of a dropped queue ' || :queue_id || ' until %', 'they go in their time');

SELECT is(head_of($$SELECT baton.hold('q', '')$$), '22023: reason must not be null or empty', 'a hold has a reason');
SELECT alike(error_as('someone', $$SELECT baton.hold('q', 'x')$$), '42501: must be owner of queue "q" to hold it', 'the owner holds');
SELECT sound('q');
SELECT sound('volatile');
SELECT * FROM finish();
DROP ROLE looker, someone, monitor;
