-- replay: retained messages are offered again, each as a new message. The dry run says what the run then does.
\ir prelude.psql

SELECT plan(57);
SELECT baton.create_queue('q', retention => '13 h', replay_window => '12 h', backoff => '0', max_delay => '1 h', max_backoff => '0'), baton.create_queue('other', retention => '13 h') \gset
SELECT put('other', 3) \gset
SELECT count(*) FROM baton.take('other', 3) \g /dev/null
SELECT FROM baton.enqueue('q', '{"n": 1}', 'm1', 'k1', 'c1', headers => '{"h": 1}', payload_ref => 'r', expires_at => now() + '1 day');
SELECT FROM baton.enqueue('q', '{"n": 2}', 'm2', 'k2', 'c1');
SELECT FROM baton.enqueue_bytes('q', '\x00ff', routing_key => 'k1');
SELECT FROM baton.enqueue('q', '{"n": 4}', message_class => 'c2');
SELECT hold(x, 'q', worker => 'w1') FROM unnest('{a,b,c,d}'::text[]) x \g /dev/null
-- in another order than they were enqueued
SELECT baton.ack(tok('c')) \g /dev/null
SELECT baton.ack(tok('a')) \g /dev/null
SELECT baton.ack(tok('d')) \g /dev/null
SELECT clock_timestamp() AS later \gset
SELECT baton.ack(tok('b')) \g /dev/null
SELECT min(settled_at) AS first FROM baton.retained('q') \gset

-- ---- the dry run
SELECT row_eq($$SELECT messages, bytes > 0, oldest, newest, last_due, was_dry_run FROM baton.replay('q')$$,
    ROW(4::bigint, true, (SELECT min(settled_at) FROM baton.retained('q')), (SELECT max(settled_at) FROM baton.retained('q')), NULL::timestamptz, true), 'counts all of the queue');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'and nothing else');
SELECT is((SELECT count(*)::int FROM baton.audit WHERE action = 'replay'), 0, 'which is nothing to write down');
SELECT is((SELECT messages::int FROM baton.replay('q', :'later')), 1, 'from_time');
SELECT is((SELECT messages::int FROM baton.replay('q', until_time => :'later')), 3, 'until_time');
SELECT is((SELECT messages::int FROM baton.replay('q', message_class => 'c1')), 2, 'message_class');
SELECT is((SELECT messages::int FROM baton.replay('q', routing_key => 'k1')), 2, 'routing_key');
SELECT is((SELECT messages::int FROM baton.replay('q', ids => '{1,4,77}')), 2, 'ids');
SELECT is((SELECT messages::int FROM baton.replay('q', :'first', :'later', 'c1', 'k1', '{1,2,3}')), 1, 'all of them');
SELECT row_eq($$SELECT messages, bytes, oldest, newest, last_due FROM baton.replay('q', message_class => 'none', rate => 1)$$, ROW(0::bigint, 0::bigint, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz), 'nothing');
SELECT is((SELECT (EXTRACT(epoch FROM last_due - clock_timestamp()) BETWEEN 1 AND 1.5) FROM baton.replay('q', rate => 2)), true, 'says when the last one would be due');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT * FROM baton.replay('q')$$), '25006: cannot execute replay in a read-only transaction', 'read only');
ROLLBACK;

-- ---- the run
BEGIN;
SELECT messages FROM baton.replay('q', dry_run => false) \g /dev/null
SELECT is((SELECT count(*)::int FROM baton_queue.q), 4, 'in the caller''s transaction');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'rolled back: nothing');
SELECT is((SELECT count(*)::int FROM baton.audit WHERE action = 'replay'), 0, 'not even in the audit');
SELECT r.messages, r.bytes FROM baton.replay('q', message_class => 'c1') r \gset dry_
SELECT r.messages, r.bytes, r.was_dry_run FROM baton.replay('q', message_class => 'c1', dry_run => false, reason => 'a bug') r \gset
SELECT is(array[:messages, :bytes], array[:dry_messages, :dry_bytes], 'does what the dry run said');
SELECT is(:'was_dry_run'::text, 'f'::text, 'and says that it did');
SELECT results_eq($$SELECT message_id, routing_key, message_class, headers, payload, payload_ref, state, generation, failures, expires_at IS NULL FROM baton_queue.q ORDER BY id$$, $$VALUES
    ('m1', 'k1', 'c1', '{"h": 1, "baton_replay_of": 1}'::jsonb, '{"n": 1}'::jsonb, 'r', 'ready', 0::bigint, 0, true),
    ('m2', 'k2', 'c1', '{"baton_replay_of": 2}', '{"n": 2}', NULL, 'ready', 0, 0, true)$$, 'new messages, in the order in which they once were enqueued');
SELECT cmp_ok((SELECT min(id) FROM baton_queue.q), '>', 4::bigint, 'with ids of their own');
SELECT cmp_ok((SELECT min(enqueued_at) FROM baton_queue.q), '>', :'later'::timestamptz, 'enqueued now');
SELECT is((SELECT count(*)::int FROM baton.retained('q')), 4, 'what was retained stays');
SELECT results_eq($$SELECT actor COLLATE "default", affected, reason COLLATE "default", details - 'bytes' FROM baton.audit WHERE action = 'replay'$$, $$SELECT current_user::text COLLATE "default", 2::bigint, 'a bug' COLLATE "default", jsonb_build_object('message_class', 'c1', 'first_id', min(id), 'last_id', max(id)) FROM baton_queue.q$$, 'audited');
SELECT hold('again', 'q') AS id \gset
SELECT is((h('again')).headers, '{"h": 1, "baton_replay_of": 1}'::jsonb, 'a worker can tell');
SELECT is(baton.ack(tok('again')), 'acked', 'acknowledged again');
SELECT is((SELECT headers FROM baton.retained('q', ids => ARRAY[:id])), '{"h": 1, "baton_replay_of": 1}'::jsonb, 'retained again, as another message');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'already_settled', 'the first life is over');
SELECT messages FROM baton.replay('q', ids => ARRAY[1, :id], dry_run => false) \g /dev/null
SELECT is((SELECT string_agg(headers::text, ' ' ORDER BY id DESC) FROM (SELECT * FROM baton_queue.q ORDER BY id DESC LIMIT 2) x), format('{"h": 1, "baton_replay_of": %s} {"h": 1, "baton_replay_of": 1}', :id), 'twice replayed, twice there; each names the one that it replays');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null

-- ---- a rate
SELECT is((SELECT messages::int FROM baton.replay('q', :'first', :'later', dry_run => false, rate => 100)), 3, 'with a rate');
SELECT results_eq($$SELECT round(EXTRACT(epoch FROM coalesce(not_before, enqueued_at) - min(enqueued_at) OVER ()) * 100) FROM baton_queue.q ORDER BY id$$, $$VALUES (0::numeric), (1), (2)$$, 'they become due one after the other');
SET pg_baton.clock_offset = 1000;
SELECT is((SELECT count(*)::int FROM baton.take('q', 100)), 3, 'and are handed out');
RESET pg_baton.clock_offset;
SELECT put('q', 100) \gset
SELECT count(*) FROM baton.take('q', 200) \g /dev/null
SELECT alter_queue FROM baton.alter_queue('q', max_delay => '10 s') \g /dev/null
SELECT is(split_part(error_of($$SELECT * FROM baton.replay('q', dry_run => false, rate => 1)$$), E'\n', 1), '22023: the rate is too low for so many messages', 'a rate that would take longer than max_delay');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'is refused as a whole');
SELECT is((SELECT last_due > clock_timestamp() + '1 min' FROM baton.replay('q', rate => 1)), true, 'the dry run shows it');
SELECT is(head_of($$SELECT * FROM baton.replay('q', rate => 0)$$), '22023: rate is out of range', 'no rate');

-- ---- a bound
SELECT is(error_of($$SELECT * FROM baton.replay('q', dry_run => false, max_items => 50)$$), E'54000: more than 50 messages are to be replayed\nDETAIL: Nothing has been replayed.\nHINT: Replay a shorter time at once (from_time, until_time), or raise max_items, which allows up to 10000000.', 'more than max_items');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 0, 'nothing');
SELECT messages AS all FROM baton.replay('q') \gset
SELECT is((SELECT messages FROM baton.replay('q', dry_run => false, max_items => :all)), :all::bigint, 'exactly so many');
SELECT is((SELECT count(*) FROM baton.take('q', 1000)), :all::bigint, 'all of them work');
SELECT is(head_of($$SELECT * FROM baton.replay('q', max_items => 0)$$), '22023: max_items is out of range', 'no bound');
SELECT is(head_of($$SELECT * FROM baton.replay('q', '2026-01-02', '2026-01-01')$$), '22023: from_time is not before until_time', 'no time');
SELECT is(head_of($$SELECT baton.replay('q')$$), '0A000: replay must be called in FROM', 'in FROM');
SELECT is(head_of($$SELECT * FROM baton.replay('nobody')$$), '42704: queue "nobody" does not exist', 'no queue');

-- ---- whole
SELECT FROM baton.enqueue('q', to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i)));
SELECT md5(payload::text) AS md5, id FROM baton.take('q') \gset
SELECT messages FROM baton.replay('q', ids => ARRAY[:id], dry_run => false) \g /dev/null
SELECT is((SELECT md5(payload::text) FROM baton.take('q')), :'md5', 'a payload beyond a page');
SELECT messages FROM baton.replay('q', ids => '{3}', dry_run => false) \g /dev/null
SELECT is((SELECT payload_bytes FROM baton.take('q')), '\x00ff'::bytea, 'bytes');
BEGIN;
SELECT put('q') \g /dev/null
COMMIT;
BEGIN;
SELECT id FROM baton.take('q') \gset
SELECT is((SELECT messages::int FROM baton.replay('q', ids => ARRAY[:id], dry_run => false)), 1, 'what the same transaction has acknowledged');
COMMIT;
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'is there after its commit');

-- ---- privileges
CREATE ROLE chief; CREATE ROLE worker; CREATE ROLE looker;
GRANT DELETE ON baton_queue.q TO chief;
GRANT INSERT, UPDATE ON baton_queue.q TO worker;
GRANT SELECT ON baton_queue.q TO looker;
SELECT is(value_as('chief', $$SELECT messages FROM baton.replay('q', ids => '{1}', dry_run => false)$$), '1', 'DELETE on the queue''s view');
SELECT is((SELECT count(*)::int FROM baton.take('q')), 1, 'one message');
SELECT is((SELECT acting_as FROM baton.audit ORDER BY at DESC LIMIT 1), 'chief', 'in whose name');
SELECT alike(error_as('chief', $$SELECT * FROM baton.retained('q')$$), '42501: %', 'is no right to look');
SELECT alike(error_as('worker', $$SELECT * FROM baton.replay('q')$$), E'42501: permission denied for queue "q"\nDETAIL: DELETE on its view is needed to %', 'INSERT and UPDATE are not enough');
SELECT alike(error_as('looker', $$SELECT * FROM baton.replay('q')$$), '42501: %', 'nor is SELECT');
SELECT is((SELECT string_agg(headers::text, '') FROM baton.retained('other')), NULL, 'the other queue has its own');
SELECT is((SELECT messages::int FROM baton.replay('other')), 3, 'as many as it had');

SELECT baton.pause('q') \gset
SELECT is((SELECT messages::int FROM baton.replay('q', ids => '{1}', dry_run => false)), 1, 'into a paused queue');
SELECT is(state_of('q', (SELECT max(id) FROM baton_queue.q)), 'ready', 'where it waits');
SELECT sound('q');
SELECT * FROM finish();
DROP OWNED BY chief, worker, looker;
DROP ROLE chief, worker, looker;
