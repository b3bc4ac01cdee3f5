-- Very many leases at once: they come back spread, and lease_grace lengthens them all.
\ir prelude.psql

SELECT plan(48);
CREATE ROLE baton_test_owner;
CREATE ROLE baton_test_chief;
GRANT CREATE ON SCHEMA baton_queue TO baton_test_owner;
CREATE FUNCTION ahead(t timestamptz) RETURNS numeric LANGUAGE sql AS $$ SELECT round(EXTRACT(epoch FROM t - clock_timestamp()) - EXTRACT(epoch FROM current_setting('pg_baton.clock_offset')::interval)) $$;
CREATE FUNCTION word(name text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(outcome, ',') FROM baton.extend_batch(ARRAY[tok(name)]) $$;

-- spread: nothing of it comes back before its lease ends, all of it a tenth of the lease later, or a second
SELECT is(current_setting('pg_baton.lapse_spread'), '1s', 'a second');
SELECT baton.create_queue('mass', lease => '10 s', max_attempts => 100) \g /dev/null
SELECT put('mass', 2000) \g /dev/null
CREATE TABLE taken (at text, id bigint, failures integer);
SELECT lease_until AS deadline FROM baton.claim('mass', 'dead', 2000) LIMIT 1 \gset
SELECT is((SELECT count(*) FROM baton.in_flight WHERE queue = 'mass'), 2000, 'two thousand claims in one call, with one deadline');
CREATE FUNCTION clock_to(after interval, deadline timestamptz) RETURNS text LANGUAGE sql AS
$$ SELECT set_config('pg_baton.clock_offset', (EXTRACT(epoch FROM deadline + after - clock_timestamp()) * 1000)::int::text, false) $$;
SELECT clock_to('-0.2 s', :'deadline') \g /dev/null
SELECT is((SELECT count(*) FROM baton.claim('mass')), 0, 'not before their end');
SELECT clock_to('0.05 s', :'deadline') \g /dev/null
INSERT INTO taken SELECT 'at once', id, failures FROM baton.claim('mass', max_items => 10000);
SELECT ok(count(*) BETWEEN 50 AND 600, 'at their end some come back at once') FROM taken;
SELECT is((SELECT ready FROM baton.queue_stats WHERE queue = 'mass') + (SELECT count(*) FROM taken), 2000, 'all of them count as ready');
SELECT row_eq($$SELECT obstacle, detail, until BETWEEN clock_timestamp() + '9 s' AND clock_timestamp() + '12 s' FROM baton.explain_message('mass', (SELECT max(id) FROM baton_queue.mass WHERE state = 'ready'))$$, ROW('scheduled'::text, 'its lease has ended; comes back by pg_baton.lapse_spread'::text, true), 'explain_message says what the others wait for');
SELECT clock_to('0.55 s', :'deadline') \g /dev/null
INSERT INTO taken SELECT 'in the middle', id, failures FROM baton.claim('mass', max_items => 10000);
SELECT ok(count(*) FILTER (WHERE at = 'in the middle') BETWEEN 300 AND 1500 AND count(*) < 2000, 'half a second later more') FROM taken;
SELECT clock_to('1 s', :'deadline') \g /dev/null
INSERT INTO taken SELECT 'in the end', id, failures FROM baton.claim('mass', max_items => 10000);
SELECT row_eq('SELECT count(*), count(DISTINCT id), min(failures), max(failures) FROM taken', ROW(2000::bigint, 2000::bigint, 1, 1), 'a second later all of them, each once, with its failure');
RESET pg_baton.clock_offset;
SELECT baton.create_queue('few', lease => '1 s', max_attempts => 100) \g /dev/null
SELECT put('few', 200) \g /dev/null
SELECT lease_until AS deadline FROM baton.claim('few', 'dead', 200) LIMIT 1 \gset
SELECT clock_to('0.11 s', :'deadline') \g /dev/null
SELECT is((SELECT count(*) FROM baton.claim('few', max_items => 1000)), 200, 'of a short lease, a tenth');
RESET pg_baton.clock_offset;
SELECT baton.create_queue('once', lease => '10 s', max_attempts => 1) \g /dev/null
SELECT put('once', 200) \g /dev/null
SELECT lease_until AS deadline FROM baton.claim('once', 'dead', 200) LIMIT 1 \gset
SELECT clock_to('0.05 s', :'deadline') \g /dev/null
CALL baton.maintain('once');
SELECT is((SELECT count(*) FROM baton.quarantined('once')), 200, 'what has used up its attempts is not spread');
RESET pg_baton.clock_offset;

-- lease_grace: live leases, and only they
SELECT value_as('baton_test_owner', $$SELECT baton.create_queue('q', lease => '1 min', max_lease => '10 min', max_lifetime => '10 min', backoff => '0')$$) \g /dev/null
SELECT put('q', 300) AS first \gset
SELECT hold('over', 'q', '1 s') \g /dev/null
SET pg_baton.clock_offset = '5 s';
SELECT hold('a', 'q'), hold('b', 'q', '5 min'), hold('c', 'q', '10 min'), hold('d', 'q', '9 min') \g /dev/null
SELECT baton.start(tok('a')) \g /dev/null
SELECT current_database() AS gid \gset
BEGIN;
SELECT baton.ack(tok('b')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT row_eq($$SELECT extended, capped FROM baton.lease_grace('q', '2 min', 'the switch was replaced')$$, ROW(2::bigint, 2::bigint), 'lengthened, and those that did not get all of it');
SELECT is(ahead(lease_until), 180::numeric, 'by two minutes') FROM baton_queue.q WHERE id = (h('a')).id;
SELECT is(ahead(lease_until), 600::numeric, 'not beyond the total lifetime') FROM baton_queue.q WHERE id = (h('d')).id;
SELECT is(ahead(lease_until), 600::numeric, 'not at all where that is reached') FROM baton_queue.q WHERE id = (h('c')).id;
SELECT is(state_of('q', (h('over')).id), 'ready', 'a lease that was over stays over');
SELECT is(word('over'), 'lease_expired', 'with its token');
SELECT is(baton.ack(tok('a')), 'acked', 'tokens are the same');
ROLLBACK PREPARED :'gid';
SELECT is(ahead(lease_until), 300::numeric, 'one that was being settled is left alone') FROM baton_queue.q WHERE id = (h('b')).id;
SELECT results_eq($$SELECT action, CASE WHEN acting_as = session_user THEN 'postgres' END, affected, reason, details FROM baton.audit WHERE action = 'lease_grace'$$, $$VALUES ('lease_grace', 'postgres', 2::bigint, 'the switch was replaced', '{"grace_s": 120.000, "capped": 2}'::jsonb)$$, 'with a row in the audit');
SELECT ok(max(deadline - claimed_at) <= '10 min 0.01 s', 'no claim is longer than its lifetime') FROM baton_internal.map_slots(segment('q')::regclass) WHERE state = 'claimed';

-- the new deadline decides
SET pg_baton.clock_offset = '9 min';
SELECT is((SELECT count(*) FROM baton.claim('q') c WHERE c.id IN ((h('c')).id, (h('d')).id)), 0, 'held beyond the old deadline');
SELECT isnt(word('d'), 'lease_expired', 'its token works');
RESET pg_baton.clock_offset;

-- many pages, once each; none of them changes hands
SELECT put('q', 2000) \g /dev/null
CREATE TABLE many AS SELECT c.* FROM baton.claim('q', 'many', 1500, '1 min') c;
SELECT extended AS n FROM baton.lease_grace('q', '1 min') \gset
SELECT cmp_ok(:n, '>=', 1500, 'many leases');
SELECT is((SELECT count(*) FROM baton_queue.q v JOIN many m USING (id) WHERE v.lease_until BETWEEN m.lease_until + '59.9 s' AND m.lease_until + '60.1 s' AND v.generation = m.generation), 1500, 'each by a minute, once');
SELECT is((SELECT count(*) FROM baton.settle(ARRAY(SELECT token FROM many), '{ack}') WHERE outcome = 'acked'), 1500, 'all their tokens work');

-- bound to a session, not started, moved: all the same
SELECT baton.create_queue('s', lease => '10 min', max_lifetime => '1 h', max_lease => '1 h', start_within => '30 s') \g /dev/null
SELECT put('s', 2) \g /dev/null
SET pg_baton.session_claims = on;
SELECT hold('s', 's') \g /dev/null
RESET pg_baton.session_claims;
SELECT row_eq($$SELECT extended, capped FROM baton.lease_grace('s', '5 min')$$, ROW(1::bigint, 0::bigint), 'a claim that is not started yet');
SELECT is(ahead(lease_until), 330::numeric, 'has more time to start') FROM baton_queue.s WHERE id = (h('s')).id;
SELECT is((SELECT session_bound FROM baton.in_flight WHERE queue = 's'), true, 'still bound');
SELECT is(ahead(baton.start(tok('s'))), 600::numeric, 'and starts as it would have');
SELECT baton.create_queue('e', lease => '10 s', max_lifetime => '1 h', max_lease => '1 h', expiry_ends_lease => true) \g /dev/null
SELECT id AS e FROM baton.enqueue('e', '1', expires_at => clock_timestamp() + '1 min') \gset
SELECT hold('e', 'e') \g /dev/null
SELECT row_eq($$SELECT extended, capped FROM baton.lease_grace('e', '5 min')$$, ROW(1::bigint, 1::bigint), 'where a lease ends with the message');
SELECT is(ahead(lease_until), 60::numeric, 'it does') FROM baton_queue.e WHERE id = :e;

-- acts at once; who may; arguments
BEGIN;
SELECT extended FROM baton.lease_grace('s', '1 min') \g /dev/null
ROLLBACK;
SELECT is(ahead(lease_until), 660::numeric, 'rolled back: longer all the same') FROM baton_queue.s WHERE id = (h('s')).id;
SELECT is((SELECT count(*) FROM baton.audit WHERE action = 'lease_grace' AND queue = 's'), 1, 'without the row in the audit');
SELECT is((SELECT extended FROM baton.lease_grace('once', '1 min')), 0, 'nothing is held');
SELECT is(value_as('baton_test_owner', $$SELECT extended IS NOT NULL FROM baton.lease_grace('q', '1 s')$$), 'true', 'the owner may');
GRANT ALL ON baton_queue.q TO baton_test_chief;
SELECT is(error_as('baton_test_chief', $$SELECT FROM baton.lease_grace('q', '1 s')$$), '42501: must be owner of queue "q" to lengthen its leases', 'others may not');
SELECT is(head_of($$SELECT FROM baton.lease_grace('q', '0')$$) || head_of($$SELECT FROM baton.lease_grace('q', '-1 s')$$), '22023: grace is out of range22023: grace is out of range', 'leases are never shortened');
SELECT is(head_of($$SELECT FROM baton.lease_grace('q', '11 min')$$), '22023: grace is out of range', 'more than a lifetime');
SELECT is(head_of($$SELECT FROM baton.lease_grace('q', NULL)$$), '22023: grace must not be null', 'none');
SELECT is(head_of($$SELECT FROM baton.lease_grace('none', '1 s')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.lease_grace('q', '1 s')$$), '25006: cannot execute lease_grace in a read-only transaction', 'read only');
ROLLBACK;
SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is((SELECT count(*) FROM baton.queues WHERE baton.drop_queue(name, discard => true)), 6, 'dropped');
REVOKE CREATE ON SCHEMA baton_queue FROM baton_test_owner;
DROP ROLE baton_test_owner, baton_test_chief;
SELECT * FROM finish();
