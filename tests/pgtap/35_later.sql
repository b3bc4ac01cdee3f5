-- Scheduled messages: due soon in their slots, later in due-time buckets, from where mover, maintain() or a claim that comes
-- up short bring them when they are due.
\ir prelude.psql

SELECT plan(62);
SELECT baton.create_queue('q', backoff => '0', lease => '12 h', max_delay => '180 days') \gset
SELECT baton.create_queue('other') \gset

CREATE FUNCTION later(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM baton_internal.later_message m WHERE m.queue_id = (SELECT value::int FROM baton.describe_queue(later.queue) WHERE option = 'id') $$;
CREATE FUNCTION tables() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE t text; n bigint; r text[] := '{}';
BEGIN
    FOR t IN SELECT 'later_' || i FROM generate_series(0, 17) i LOOP
        EXECUTE format('SELECT count(*) FROM baton_data.%I', t) INTO n;
        IF n > 0 THEN r := r || t; END IF;
    END LOOP;
    RETURN r;
END $$;

-- where a message waits
SELECT state FROM baton.enqueue('q', '"soon"', delay => '59 s') \gset
SELECT is(:'state'::text, 'scheduled', 'due within pg_baton.soon: scheduled');
SELECT is(later('q'), 0::bigint, 'in its slot');
SELECT id AS far, state FROM baton.enqueue('q', '"far"', delay => '2 h', routing_key => 'k', message_class => 'c', headers => '{"h": 1}', expires_at => now() + '4 days') \gset
SELECT is(:'state'::text, 'scheduled', 'due later: scheduled');
SELECT is(later('q'), 1::bigint, 'in a bucket');
SELECT is(array_length(tables(), 1), 1, 'in one of them');
SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 6) i), delays => '{3 h,2 days,100 days,30 s,0,179 days}') \gset
SELECT is(later('q'), 5::bigint, 'a batch is divided');
SELECT is((SELECT count(*)::int FROM unnest(tables()) t WHERE substr(t, 7)::int < 6), 2, 'by level: hours');
SELECT is((SELECT count(*)::int FROM unnest(tables()) t WHERE substr(t, 7)::int BETWEEN 6 AND 11), 1, 'days');
SELECT is((SELECT count(*)::int FROM unnest(tables()) t WHERE substr(t, 7)::int > 11), 2, 'months');
SELECT sound('q');

-- shown where it is looked for
SELECT is((SELECT state FROM baton_queue.q WHERE id = :far), 'scheduled', 'the queue''s view shows it');
SELECT is((SELECT (routing_key, message_class, headers, payload, generation, failures)::text FROM baton_queue.q WHERE id = :far), '(k,c,"{""h"": 1}","""far""",0,0)', 'with its envelope');
SELECT ok((SELECT not_before - enqueued_at BETWEEN '2 h' AND '2 h 1 s' FROM baton_queue.q WHERE id = :far), 'and due time');
SELECT is((SELECT scheduled FROM baton.queue_stats WHERE queue = 'q'), 7::bigint, 'queue_stats counts it');
SELECT is((SELECT ready FROM baton.queue_stats WHERE queue = 'q'), 1::bigint, 'as scheduled');
SELECT is((SELECT obstacle FROM baton.explain_message('q', :far)), 'scheduled', 'explain_message finds it');
SELECT is((SELECT count(*)::int FROM baton_queue.other), 0, 'nobody else''s view does');
SELECT is(baton.backlog('q'), 1::float8, 'no backlog yet');

-- never early, and brought in time
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 1, 'only what is due is handed out');
SET pg_baton.clock_offset = 7100000;
CALL baton.maintain('q');
SELECT is(later('q'), 5::bigint, 'not moved before it is nearly due');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 2, 'those in their slots are due');
SET pg_baton.clock_offset = 7201000;
CALL baton.maintain('q');
SELECT is(later('q'), 4::bigint, 'moved when it is due');
SELECT hold('f', 'q') \g /dev/null
SELECT is((h('f')).id, :far::bigint, 'handed out, under its id');
SELECT is(((h('f')).routing_key, (h('f')).message_class, (h('f')).headers, (h('f')).payload, (h('f')).generation, (h('f')).failures)::text,
          '(k,c,"{""h"": 1}","""far""",1,0)', 'with everything');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE id = :far), 1, 'it is in one place');
SELECT sound('q');

-- a release with a long delay moves the message; its token is used up
SELECT is((SELECT state FROM baton.release(tok('f'), '3 days')), 'scheduled', 'released for long');
SELECT is(later('q'), 5::bigint, 'it waits in a bucket');
SELECT is((SELECT (generation, failures)::text FROM baton_queue.q WHERE id = :far), '(1,1)', 'generation and failures went with it');
SELECT alike(error_of(format('SELECT baton.ack(%L)', tok('f'))), 'QB003%', 'its token is settled');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('f')], '{ack}')), 'already_settled', 'in the array forms too');
SELECT sound('q');
SET pg_baton.clock_offset = 345700000;
CALL baton.maintain();
SELECT is((SELECT (generation, failures)::text FROM baton.claim('q', max_items => 10) WHERE id = :far), NULL, 'the message''s own expiry still holds');
SELECT is((SELECT obstacle FROM baton.explain_message('q', :far)), 'settled', 'it has expired');

-- rolled back
RESET pg_baton.clock_offset;
BEGIN;
SELECT put('other', 1) AS o \gset
SELECT FROM baton.enqueue('other', '1', delay => '2 h');
SELECT is(later('other'), 1::bigint, 'one''s own can be seen');
ROLLBACK;
SELECT is(later('other'), 0::bigint, 'and never was after a rollback');
SELECT put('other', 1) AS o \gset
SELECT hold('o', 'other') \g /dev/null
BEGIN;
SELECT FROM baton.release(tok('o'), '2 h');
SELECT is(later('other'), 1::bigint, 'released for long');
ROLLBACK;
SELECT is(later('other'), 0::bigint, 'rolled back');
SELECT is(state_of('other', (h('o')).id), 'claimed', 'the claim goes on');
BEGIN;
SAVEPOINT s;
SELECT FROM baton.release(tok('o'), '2 h');
ROLLBACK TO s;
SELECT is(baton.ack(tok('o')), 'acked', 'and can be settled after a savepoint was rolled back');
COMMIT;
SELECT sound('other');

-- with the mover late, a claim that comes up short helps itself (there is no worker in this cluster's database)
SELECT baton.create_queue('late', backoff => '0') \gset
SELECT count(*) FROM baton.enqueue_batch('late', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 250) i), delays => '{2 h}') \gset
SELECT FROM baton.enqueue('other', '1', delay => '2 h');
SET pg_baton.clock_offset = 7300000;
SELECT is((SELECT count(*)::int FROM baton.claim('late', max_items => 100)), 0, 'what a claim moves itself is for the next');
SELECT is(later('late'), 150::bigint, 'it moves a few');
SELECT is((SELECT count(*)::int FROM baton.claim('late', max_items => 100)), 100, 'the next hands them out');
SELECT is((SELECT count(*)::int FROM baton.claim('late', max_items => 100)), 0, 'and so on');
SELECT is((SELECT count(*)::int FROM baton.claim('late', max_items => 1000)), 100, 'and on');
SELECT is((SELECT count(*)::int FROM baton.claim('late', max_items => 1000)), 50, 'to the last');
SELECT is(later('late'), 0::bigint, 'none is left');
SELECT is(later('other'), 1::bigint, 'another queue''s is left alone');
BEGIN;
SELECT count(*) FROM baton.claim('other') \g /dev/null
SELECT is(later('other'), 0::bigint, 'moved in the claimer''s transaction');
ROLLBACK;
SELECT is(later('other'), 1::bigint, 'and back with it');
CALL baton.wait('other', '10 s');
SELECT is((SELECT count(*)::int FROM baton.claim('other')), 1, 'wait helps as well');
SELECT sound('late');
SELECT sound('other');
RESET pg_baton.clock_offset;

-- past the verbs: plain SQL
SELECT baton.create_queue('sql') \gset
SELECT value AS sql_id FROM baton.describe_queue('sql') WHERE option = 'id' \gset
INSERT INTO baton_data.later_3 (id, enqueued_at, not_before, queue_id, payload) VALUES (7, now(), now() - interval '1 min', :sql_id, '"restored"');
SELECT setval('baton_data.q' || :sql_id || '_id', 7) \g /dev/null
CALL baton.maintain();
SELECT is((SELECT payload #>> '{}' FROM baton.claim('sql')), 'restored', 'a row that was put into a bucket by COPY or a restore is found, whichever it is');
BEGIN;
INSERT INTO baton_data.later_3 (id, enqueued_at, not_before, queue_id, payload) VALUES (8, now(), now() + interval '2 h', :sql_id, '1');
SELECT isnt(error_of($$UPDATE baton_data.later_3 SET payload = '2'$$), 'no error', 'rows are not changed');
ROLLBACK;
SELECT FROM baton.enqueue('sql', '1', delay => '2 h');
SELECT is(error_of($$SELECT baton.drop_queue('sql')$$) ~ 'holds 2 unsettled', true, 'a queue that is not empty is not dropped');
SELECT is(baton.drop_queue('sql', discard => true), true, 'unless its messages may go');
SELECT is((SELECT count(*)::int FROM baton_internal.later_message WHERE queue_id = :sql_id), 0, 'with what it had in buckets');
SET pg_baton.clock_offset = 7300000;
CALL baton.maintain();
RESET pg_baton.clock_offset;
SELECT is((SELECT count(*)::int FROM generate_series(0, 5) n, baton_internal.map_slots(('baton_data.later_' || n)::regclass) s WHERE s.resolved <> 'gone' AND s.key_hash = :sql_id), 0,
          'and the mover settles their slots');
SELECT is((SELECT state FROM baton.enqueue('q', '1', delay => '180 days')), 'scheduled', 'the longest delay');
SELECT sound('q');
SELECT finish();
