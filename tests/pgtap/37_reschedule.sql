-- reschedule: changes when a message that nobody holds is due, in the caller's transaction.
\ir prelude.psql

SELECT plan(54);
SET pg_baton.settle_timeout = '100 ms';
CREATE ROLE baton_test_chief;
CREATE ROLE baton_test_worker;
SELECT baton.create_queue('q', backoff => '10 s', max_attempts => 3, lease => '10 min', max_delay => '10 days') \g /dev/null
GRANT DELETE ON baton_queue.q TO baton_test_chief;
GRANT UPDATE ON baton_queue.q TO baton_test_worker;
CREATE FUNCTION due_in(id bigint) RETURNS numeric LANGUAGE sql AS $$ SELECT round(extract(epoch FROM not_before - clock_timestamp() - current_setting('pg_baton.clock_offset')::interval)) FROM baton_queue.q m WHERE m.id = due_in.id $$;
-- how many slots and rows there are of a message that is not settled, wherever
CREATE FUNCTION places(id bigint) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', (SELECT count(*) FROM baton.describe_queue('q') d, generate_series(0, 2) n, LATERAL baton_internal.map_slots(format('baton_data.q%s_%s', d.value, n)::regclass) s
                           WHERE d.option = 'id' AND s.id = places.id AND s.resolved <> 'gone'),
                          (SELECT count(*) FROM baton_internal.later_message m WHERE m.id = places.id)) $$;

-- ready, scheduled soon, scheduled later: from each to each
SELECT id AS a FROM baton.enqueue('q', '"a"', message_id => 'm-a', routing_key => 'k') \gset
SELECT row_eq(format('SELECT state, round(extract(epoch FROM due - clock_timestamp())) FROM baton.reschedule(%L, %s, %L)', 'q', :a, '30 s'), ROW('scheduled'::text, 30::numeric), 'ready, to soon');
SELECT is(state_of('q', :a) || ' ' || due_in(:a) || ' ' || places(:a), 'scheduled 30 1 0', 'it waits in the queue');
SELECT is((SELECT count(*) FROM baton.claim('q')), 0, 'and is not handed out');
SELECT row_eq(format('SELECT state, round(extract(epoch FROM due - clock_timestamp())) FROM baton.reschedule(%L, %s, %L)', 'q', :a, '2 h'), ROW('scheduled'::text, 7200::numeric), 'soon, to later');
SELECT is(state_of('q', :a) || ' ' || due_in(:a) || ' ' || places(:a), 'scheduled 7200 0 1', 'it waits in a bucket');
SELECT row_eq(format('SELECT state, round(extract(epoch FROM due - clock_timestamp())) FROM baton.reschedule(%L, %s, %L)', 'q', :a, '9 days'), ROW('scheduled'::text, 777600::numeric), 'later, to much later');
SELECT is(state_of('q', :a) || ' ' || due_in(:a) || ' ' || places(:a), 'scheduled 777600 0 1', 'in another bucket');
SELECT row_eq(format('SELECT state, round(extract(epoch FROM due - clock_timestamp())) FROM baton.reschedule(%L, %s, not_before => clock_timestamp() + %L)', 'q', :a, '20 s'), ROW('scheduled'::text, 20::numeric), 'much later, to soon');
SELECT is(state_of('q', :a) || ' ' || due_in(:a) || ' ' || places(:a), 'scheduled 20 1 0', 'back in the queue');
SELECT row_eq(format('SELECT state, due FROM baton.reschedule(%L, %s, %L)', 'q', :a, '0 s'), ROW('ready'::text, NULL::timestamptz), 'soon, to now');
SELECT is(state_of('q', :a) || ' ' || places(:a), 'ready 1 0', 'ready');
SELECT row_eq(format('SELECT state, due FROM baton.reschedule(%L, %s, not_before => %L)', 'q', :a, '2001-01-01'), ROW('ready'::text, NULL::timestamptz), 'to a time that has passed: now');
SELECT row_eq('SELECT id, message_id, routing_key, payload, generation, failures FROM baton.take(''q'')', ROW(:a::bigint, 'm-a'::text, 'k'::text, '"a"'::jsonb, 1, 0), 'the same message, handed out once');
SELECT is((SELECT count(*) FROM baton.take('q')), 0, 'once');
SELECT results_eq('SELECT action, queue, affected, details->>''id'' FROM baton.audit ORDER BY at', format($$SELECT 'reschedule', 'q', 1::bigint, '%s' FROM generate_series(1, 6)$$, :a), 'each call has a row in the audit');
SELECT ok(details->>'from' IS NULL AND (details->>'to')::timestamptz > clock_timestamp(), 'with the old and the new time') FROM baton.audit ORDER BY at LIMIT 1;

-- now comes before what waits in the queue
SELECT put('q', 5) \g /dev/null
SELECT id AS b FROM baton.enqueue('q', '"b"', delay => '5 h') \gset
SELECT put('q', 5) \g /dev/null
SELECT state FROM baton.reschedule('q', :b, '0', reason => 'cannot wait') \g /dev/null
SELECT is((SELECT id FROM baton.take('q')), :b::bigint, 'what is to be done now is handed out first');
SELECT is((SELECT reason FROM baton.audit ORDER BY at DESC LIMIT 1), 'cannot wait', 'with its reason');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null

-- a map that is made anew from the rows knows the new time
SELECT id AS c FROM baton.enqueue('q', '"c"', delay => '5 h') \gset
SELECT id AS d FROM baton.enqueue('q', '"d"') \gset
SELECT state FROM baton.reschedule('q', :c, '0') \g /dev/null
SELECT state FROM baton.reschedule('q', :d, '40 s') \g /dev/null
SET client_min_messages = error;
SELECT format('REINDEX TABLE %s', segment('q', n)) FROM generate_series(0, 2) n \gexec
SET client_min_messages = warning;
SELECT is((SELECT string_agg(id || ' ' || state, ', ' ORDER BY id) FROM baton_queue.q), format('%s ready, %s scheduled', :c, :d), 'after a REINDEX as before');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT state FROM baton.reschedule('q', :d, '0') \g /dev/null
SELECT count(*) FROM baton.take('q', 100) \g /dev/null

-- failures and generation go with it; an old token does not hear that it has settled the message
SELECT put('q', 1) AS f \gset
SELECT hold('f', 'q') \g /dev/null
SELECT state FROM baton.release(tok('f')) \g /dev/null
SELECT state FROM baton.reschedule('q', :f, '0') \g /dev/null
SELECT row_eq(format('SELECT state, failures, generation FROM baton_queue.q WHERE id = %s', :f), ROW('ready'::text, 1, 1::bigint), 'waiting after a failure: it need not');
SELECT hold('f2', 'q') \g /dev/null
SELECT is(baton.revoke('q', :f), 'revoked', 'taken away');
SELECT state FROM baton.reschedule('q', :f, '1 h') \g /dev/null
SELECT isnt((SELECT outcome FROM baton.settle(ARRAY[tok('f2')], '{ack}')), 'already_settled', 'and put off: its old token has not settled it');
SELECT state FROM baton.reschedule('q', :f, '0') \g /dev/null

-- a lease that is over: the failure is counted first
SELECT hold('l', 'q') \g /dev/null
SET pg_baton.clock_offset = '11 min';
SELECT is((SELECT state FROM baton.reschedule('q', :f, '30 s')), 'scheduled', 'a lease that is over holds nothing');
SELECT is(failures_of('q', :f) || ' ' || due_in(:f), '2 30', 'its failure is counted');
SELECT state FROM baton.reschedule('q', :f, '0') \g /dev/null
SELECT hold('l', 'q') \g /dev/null
SET pg_baton.clock_offset = '22 min';
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :f, '30 s')), format('55000: message %s of queue "q" has used up its attempts', :f), 'the last failure is not put off');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
RESET pg_baton.clock_offset;

-- refused: claimed, settled, quarantined, unknown
SELECT put('q', 2) AS g \gset
SELECT hold('g', 'q') \g /dev/null
SELECT is(error_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :g, '1 h')), format(E'55000: message %s of queue "q" is claimed\nHINT: Take it away from its worker with baton.revoke, which takes a delay.', :g), 'claimed');
SELECT baton.ack(tok('g')) \g /dev/null
SELECT is(error_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :g, '1 h')), format(E'42704: message %s of queue "q" does not exist\nDETAIL: It was settled, or set aside.\nHINT: baton.explain_message says what became of it.', :g), 'settled');
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :f, '1 h')), format('42704: message %s of queue "q" does not exist', :f), 'quarantined');
SELECT is(error_of($$SELECT FROM baton.reschedule('q', 4711, '1 h')$$), E'42704: message 4711 of queue "q" does not exist\nHINT: baton.explain_message says what became of it.', 'unknown');
SELECT hold('h', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('h')) \g /dev/null
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', (h('h')).id, '1 h')), format('55000: message %s of queue "q" has been enqueued, moved or settled by this transaction', (h('h')).id), 'settled by this transaction');
ROLLBACK;
SELECT current_database() AS gid \gset
BEGIN;
SELECT baton.ack(tok('h')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', (h('h')).id, '1 h')), format('55P03: message %s of queue "q" is in use', (h('h')).id), 'settled by a prepared one: waits no longer than settle_timeout');
COMMIT PREPARED :'gid';
BEGIN;
SELECT put('q', 1) AS own \gset
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :own, '1 h')), format('55000: message %s of queue "q" has been enqueued, moved or settled by this transaction', :own), 'its own enqueue');
ROLLBACK;
SELECT is((SELECT count(*) FROM baton.audit WHERE details->>'id' IN (:'g', '4711')), 0, 'none of that is in the audit');

-- expiry
SELECT id AS x FROM baton.enqueue('q', '"x"', expires_at => clock_timestamp() + '1 h') \gset
SELECT is((SELECT state FROM baton.reschedule('q', :x, '30 min')), 'scheduled', 'due before it expires');
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :x, '61 min')), '22023: expires_at is not after the time from which the message may be claimed', 'due after: refused');
SELECT is(due_in(:x), 1800::numeric, 'it is as it was');
SELECT is((SELECT state FROM baton.reschedule('q', :x, '0')), 'ready', 'now');
SET pg_baton.clock_offset = '62 min';
SELECT is(head_of(format('SELECT FROM baton.reschedule(%L, %s, %L)', 'q', :x, '0')), '22023: expires_at is not after the time from which the message may be claimed', 'expired');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
RESET pg_baton.clock_offset;

-- in the caller's transaction
SELECT id AS t FROM baton.enqueue('q', '"t"', delay => '30 s') \gset
SELECT id AS u FROM baton.enqueue('q', '"u"', delay => '3 h') \gset
BEGIN;
SELECT state FROM baton.reschedule('q', :t, '5 h') \g /dev/null
SELECT state FROM baton.reschedule('q', :u, '0') \g /dev/null
ROLLBACK;
SELECT is(due_in(:t) || ' ' || due_in(:u) || ' ' || places(:t) || ' ' || places(:u), '30 10800 1 0 0 1', 'rolled back: as it was');
SELECT is((SELECT count(*) FROM baton.audit WHERE details->>'id' IN (:'t', :'u')), 0, 'without a row in the audit');
BEGIN;
SELECT state FROM baton.reschedule('q', :u, '0') \g /dev/null
SELECT is((SELECT count(*) FROM baton.claim('q')), 0, 'not before the commit');
COMMIT;
SELECT is((SELECT id FROM baton.take('q')), :u::bigint, 'from the commit on');

-- who may, and arguments
SELECT is(value_as('baton_test_chief', format('SELECT state FROM baton.reschedule(%L, %s, %L)', 'q', :t, '1 h')), 'scheduled', 'DELETE on the queue''s view is enough');
SELECT is((SELECT acting_as FROM baton.audit WHERE details->>'id' = :'t'), 'baton_test_chief', 'written down under the role that did it');
SELECT is(split_part(error_as('baton_test_worker', $$SELECT FROM baton.reschedule('q', 1, '0')$$), E'\n', 1), '42501: permission denied for queue "q"', 'UPDATE is not');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1)$$), '22023: neither delay nor not_before is given', 'no time');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1, '0', now())$$), '22023: delay and not_before are both given', 'two');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1, '11 days')$$), '22023: delay is out of range', 'too far');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1, not_before => now() + '11 days')$$), '22023: not_before is too far in the future', 'likewise');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1, not_before => 'infinity')$$), '22023: not_before must be finite', 'never');
SELECT is(head_of($$SELECT FROM baton.reschedule('q', NULL, '0')$$), '22023: id must not be null', 'no id');
SELECT is(head_of($$SELECT FROM baton.reschedule('none', 1, '0')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.reschedule('q', 1, '0')$$), '25006: cannot execute reschedule in a read-only transaction', 'read only');
ROLLBACK;
SELECT sound('q');
SELECT baton.drop_queue('q', discard => true) \g /dev/null
DROP ROLE baton_test_chief, baton_test_worker;
SELECT * FROM finish();
