-- start_within: until it is started, a claim's lease is short; start gives it its length.
\ir prelude.psql

SELECT plan(40);
CREATE FUNCTION ahead(t timestamptz) RETURNS numeric LANGUAGE sql AS $$ SELECT round(EXTRACT(epoch FROM t - clock_timestamp()) - EXTRACT(epoch FROM current_setting('pg_baton.clock_offset')::interval)) $$;
SELECT baton.create_queue('q', lease => '10 min', max_lease => '15 min', max_lifetime => '15 min', start_within => '30 s', backoff => '0', max_attempts => 5) \g /dev/null
CREATE FUNCTION left_of(name text) RETURNS numeric LANGUAGE sql AS $$ SELECT ahead(lease_until) FROM baton_queue.q WHERE id = (h(left_of.name)).id $$;
CREATE FUNCTION word(name text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(outcome, ',') FROM baton.extend_batch(ARRAY[tok(name)]) $$;
SELECT put('q', 5) AS first \gset

SELECT hold('a', 'q', worker => 'w1') AS a \gset
SELECT is(ahead((h('a')).lease_until), 30::numeric, 'the delivery says how long it has');
SELECT is(left_of('a'), 30::numeric, 'and so does the view');
SELECT ok(not_started BETWEEN '0' AND '5 s' AND running IS NULL AND lease_left BETWEEN '20 s' AND '30 s', 'in flight, with the age of a claim that is not started') FROM baton.in_flight WHERE id = :a;
SELECT is(error_of($$SELECT baton.extend(tok('a'))$$) LIKE E'55000: extend refused: the lease is short until the message is started, and cannot be extended before\nDETAIL: message % of queue "q": not_started: not started yet, and to be started within %.% s.\nHINT: Call baton.start when the work begins: it gives the lease its full length.', true, 'a buffer cannot keep it by extending');
SELECT is(word('a'), 'not_started', 'extend_batch says so');
SELECT is(left_of('a'), 30::numeric, 'it is as it was');
SET pg_baton.clock_offset = '20 s';
SELECT is(ahead(baton.start(tok('a'))), 600::numeric, 'start gives the length that the claim asked for, from now');
SELECT is(left_of('a'), 600::numeric, 'and so it is');
SELECT ok(not_started IS NULL AND running IS NOT NULL AND held BETWEEN '0' AND '30 s', 'in flight, started') FROM baton.in_flight WHERE id = :a;
SET pg_baton.clock_offset = '25 s';
SELECT is(ahead(baton.start(tok('a'))), 595::numeric, 'started once more: nothing changes');
SELECT is(ahead(baton.extend(tok('a'))), 600::numeric, 'now it can be extended');
SELECT is(baton.ack(tok('a')), 'acked', 'and settled');
RESET pg_baton.clock_offset;

-- lapses when it is not started
SELECT hold('b', 'q', worker => 'w1') AS b \gset
SELECT hold('c', 'q', '20 s', 'w1') AS c \gset
SELECT is(left_of('c'), 20::numeric, 'a lease that is shorter anyway');
SELECT is(ahead(baton.start(tok('c'))), 20::numeric, 'starts as long as it is');
SET pg_baton.clock_offset = '31 s';
SELECT is(state_of('q', :b), 'ready', 'not started in time: there for others');
SELECT is(error_of($$SELECT baton.start(tok('b'))$$) LIKE 'QB002:%', true, 'too late to start');
SELECT is(baton.why_empty('q'), NULL, 'there is something');
SELECT is((SELECT count(*) FROM baton.claim('q', max_items => 100) d WHERE d.id IN (:b, :c) AND d.failures = 1), 2, 'claimed by another, with a failure counted');
RESET pg_baton.clock_offset;
SELECT is(word('b'), 'stale_generation', 'the first is fenced');

-- hand back, ack and release without start
SELECT put('q', 20) \g /dev/null
SELECT hold('d', 'q'), hold('e', 'q'), hold('f', 'q') \g /dev/null
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('d')])), 'handed_back', 'not started: handed back');
SELECT is(baton.ack(tok('e')), 'acked', 'start is not asked for');
SELECT is((SELECT state FROM baton.release(tok('f'))), 'ready', 'released');
SELECT hold('d', 'q') \g /dev/null
SELECT baton.start(tok('d')) \g /dev/null
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('d')])), 'already_started', 'started work is not handed back');
SELECT is(left_of('d'), 600::numeric, 'the claim goes on');
SELECT is(baton.ack(tok('d')), 'acked', 'and settles');

-- a settlement that is rolled back leaves the lease as it was, and what start will give
SELECT hold('g', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('g')) \g /dev/null
ROLLBACK;
SELECT is(left_of('g'), 30::numeric, 'an ack was rolled back: still short');
SELECT is(word('g'), 'not_started', 'and waits for its start');
SELECT is(ahead(baton.start(tok('g'))), 600::numeric, 'which gives it its length');
SELECT hold('r', 'q') \g /dev/null
BEGIN;
SELECT state FROM baton.release(tok('r'), '1 s') \g /dev/null
ROLLBACK;
SELECT is(left_of('r'), 30::numeric, 'a release was rolled back: still short');
SELECT is(ahead(baton.extend(tok('r'))), 600::numeric, 'what start would give is forgotten: extend does');

-- the total lifetime counts from the claim
SELECT baton.alter_queue('q', start_within => '10 min') \g /dev/null
SELECT hold('l', 'q', '15 min') \g /dev/null
SET pg_baton.clock_offset = '5 min';
SELECT is(ahead(baton.start(tok('l'))), 600::numeric, 'started after 5 minutes of 15: ten are left of its lifetime');
SELECT is(split_part(error_of($$SELECT baton.extend(tok('l'), '15 min')$$), 'lifetime_exceeded: ', 2), E'the total lifetime of a lease is 900.0 s here, 600.0 s of it are left.\nHINT: Ask for a shorter lease, or raise max_lifetime with baton.alter_queue.', 'and it cannot be extended beyond');
RESET pg_baton.clock_offset;
SELECT is((SELECT max(deadline - claimed_at) <= '15 min 0.01 s' FROM baton_internal.map_slots(segment('q')::regclass)), true, 'no claim is longer than that');

-- the option as it is at the claim
SELECT baton.alter_queue('q', start_within => '0') \g /dev/null
SELECT hold('n', 'q') \g /dev/null
SELECT is(left_of('n'), 600::numeric, 'without the option a lease has its length from the claim');
SELECT is(ahead(baton.start(tok('n'))), 600::numeric, 'and start leaves it alone');
SET pg_baton.clock_offset = '1 min';
SELECT is(ahead(baton.start(tok('n'))), 540::numeric, 'always');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('n')])), 'already_started', 'started work is not handed back here either');
RESET pg_baton.clock_offset;
SELECT baton.alter_queue('q', start_within => '30 s') \g /dev/null
SELECT is((SELECT count(*) FROM baton.settle_and_claim('q', NULL, max_items => 3) d WHERE ahead(d.lease_until) = 30), 3, 'settle_and_claim');
SELECT is((SELECT count(*) FROM baton.take('q')), 1, 'take is not concerned');
SELECT sound('q');
SELECT baton.drop_queue('q', discard => true) \g /dev/null
SELECT * FROM finish();
