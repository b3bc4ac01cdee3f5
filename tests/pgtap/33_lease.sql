-- Leases: start, extend, extend_batch; expiry with no worker's help; the half-open rule; lifetime; who is fenced.
\ir prelude.psql

SELECT plan(96);
SELECT baton.create_queue('q', lease => '30 s', min_lease => '1 s', max_lease => '60 s', max_lifetime => '100 s', max_attempts => 5, backoff => '0') \gset
SELECT segment('q') AS seg \gset
CREATE FUNCTION deadline(name text) RETURNS timestamptz LANGUAGE sql AS $$ SELECT lease_until FROM baton_queue.q WHERE id = (h(deadline.name)).id $$;
CREATE FUNCTION ahead(t timestamptz) RETURNS numeric LANGUAGE sql AS $$ SELECT round(EXTRACT(epoch FROM t - clock_timestamp()), 0) $$;
-- the clock that decides, as far from the deadline of a claim as said
CREATE FUNCTION clock_to(name text, ms integer) RETURNS text LANGUAGE sql AS
$$ SELECT set_config('pg_baton.clock_offset', (ceil(EXTRACT(epoch FROM (h(clock_to.name)).lease_until - clock_timestamp()) * 1000)::int + ms)::text, false) $$;

-- start
SELECT put('q', 10) AS first \gset
SELECT hold('a', 'q', worker => 'w1') \gset
SELECT is((SELECT running FROM baton.in_flight WHERE id = :first), NULL, 'claimed, not started');
SELECT is(baton.start(tok('a')), (h('a')).lease_until, 'start returns the deadline');
SELECT isnt((SELECT running FROM baton.in_flight WHERE id = :first), NULL, 'started');
SELECT started_at AS started FROM baton_internal.map_slots(:'seg') WHERE id = :first \gset
SELECT is(baton.start(tok('a')), (h('a')).lease_until, 'started again: the same answer');
SELECT is((SELECT started_at FROM baton_internal.map_slots(:'seg') WHERE id = :first), :'started'::timestamptz, 'the first start counts');
SELECT is(state_of('q', :first), 'claimed', 'and nothing else has changed');
BEGIN;
SELECT hold('b', 'q') \gset
COMMIT;
BEGIN;
SELECT baton.start(tok('b')) \g /dev/null
ROLLBACK;
SELECT isnt((SELECT started_at FROM baton_internal.map_slots(:'seg') WHERE id = (h('b')).id), NULL, 'start acts at once, whatever becomes of the transaction');

-- extend
SELECT ok(baton.extend(tok('a'), '50 s') BETWEEN clock_timestamp() + '49 s' AND clock_timestamp() + '50 s', 'from now, not from the old deadline');
SELECT is(ahead(deadline('a')), 50::numeric, 'and so it is');
SELECT is(ahead(baton.extend(tok('a'), '10 s')), 50::numeric, 'never shortened: it answers with the deadline that holds');
SELECT is(ahead(deadline('a')), 50::numeric, 'nothing has changed');
SELECT is(ahead(baton.extend(tok('a'))), 50::numeric, 'without a lease: the queue''s, which is shorter here');
SELECT is(ahead(baton.extend(tok('a'), '60 s')), 60::numeric, 'the longest');
SELECT is(error_of($$SELECT baton.extend(tok('a'), '60.000001 s')$$), E'22023: lease is out of range\nDETAIL: It is 00:01:00.000001; allowed is 00:00:01 to 00:01:00.', 'longer: refused, not clamped');
SELECT is(head_of($$SELECT baton.extend(tok('a'), '0.999 s')$$), '22023: lease is out of range', 'shorter than the shortest');
SELECT is(head_of($$SELECT baton.extend(tok('a'), '0')$$), '22023: lease is out of range', 'zero is no release');
SELECT is(head_of($$SELECT baton.extend(tok('a'), '-1 s')$$), '22023: lease is out of range', 'negative');
SELECT is(head_of($$SELECT baton.extend(tok('a'), '1 month')$$), '22023: lease must not contain months or years', 'a month');
SELECT is(ahead(deadline('a')), 60::numeric, 'what was refused changed nothing');
SELECT is((SELECT generation FROM baton_queue.q WHERE id = :first), 1, 'the generation is the same');
SELECT ok(abs(EXTRACT(epoch FROM started_at - :'started'::timestamptz)) <= 0.01, 'so is the start, to the millisecond for each extension') FROM baton_internal.map_slots(:'seg') WHERE id = :first;
SELECT is((SELECT claimed_at FROM baton_internal.map_slots(:'seg') WHERE id = :first) <= (h('a')).lease_until - '30 s'::interval, true, 'and the time of the claim');
BEGIN;
SELECT baton.extend(tok('b'), '60 s') \g /dev/null
ROLLBACK;
SELECT is(ahead(deadline('b')), 60::numeric, 'extend acts at once, whatever becomes of the transaction');
SELECT is(baton.ack(tok('b')), 'acked', 'the token is the same');

-- total lifetime: 100 s from the claim
SELECT hold('l', 'q', '60 s') \gset
SELECT clock_to('l', -10000) \g /dev/null
SELECT is(round(EXTRACT(epoch FROM baton.extend(tok('l'), '49 s') - (h('l')).lease_until)), 39::numeric, 'claimed for 60, after 50 extended by 49: 99 s');
SELECT alike(error_of($$SELECT baton.extend(tok('l'), '51 s')$$), E'53400: extend refused: the lease cannot be extended beyond the queue''s total lifetime\nDETAIL: message % of queue "q": lifetime_exceeded: the total lifetime of a lease is 100.0 s here, 50.0 s of it are left.\nHINT: Ask for a shorter lease, or raise max_lifetime with baton.alter_queue.', 'by 51 would be 101: refused, with what is left');
SELECT is(round(EXTRACT(epoch FROM deadline('l') - (h('l')).lease_until)), 39::numeric, 'the claim is as it was');
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('l')], '51 s')), 'lifetime_exceeded', 'extend_batch says so');
SELECT clock_to('l', 30000) \g /dev/null
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('l')], '9 s')), 'extended', 'after 90 by 9: accepted');
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('l')], '11 s')), 'lifetime_exceeded', 'by 11: not');
-- the very boundary: the slot keeps the claim's time to the millisecond and rounds it down
SELECT claimed_at AS claimed_at FROM baton_internal.map_slots(:'seg') WHERE id = (h('l')).id \gset
SELECT ok((h('l')).lease_until - '60 s'::interval - :'claimed_at'::timestamptz BETWEEN '0' AND '0.01 s', 'the time of the claim is known to the millisecond for each extension');
SELECT is(baton.ack(tok('l')), 'acked', 'and the claim is good');
RESET pg_baton.clock_offset;
SELECT baton.create_queue('short', lease => '1 s', min_lease => '1 s', max_lease => '10 s', max_lifetime => '10 s') \gset
SELECT put('short', 2) \g /dev/null
SELECT hold('s', 'short', '10 s') \gset
SET pg_baton.clock_offset = -1000;
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('s')], '10 s')), 'extended', 'a lease as long as a life, asked for within it');
RESET pg_baton.clock_offset;
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('s')], '10 s')), 'lifetime_exceeded', 'and a moment after it began');

-- T1: the lease is over, and nobody has taken the message since. No worker is needed to find that out.
SELECT hold('a', 'q') \gset
SELECT clock_to('a', -200) \g /dev/null
SELECT isnt(baton.extend(tok('a'), '1 s'), NULL, 'just before the end: extended');
RESET pg_baton.clock_offset;
SELECT hold('a', 'q') \gset
SELECT clock_to('a', 1500) \g /dev/null
SELECT is(baton.why_empty('q'), NULL, 'after the end it can be claimed');
SELECT alike(error_of($$SELECT baton.ack(tok('a'))$$), E'QB002: ack refused: the lease ended before the verb was called\nDETAIL: message % of queue "q": lease_expired: the lease ended 1.5 s ago.\nHINT: Roll back: somebody else may be working on the message. For long work use baton.extend, or a longer lease.', 'ack after the end');
SELECT is(head_of($$SELECT baton.extend(tok('a'), '10 s')$$), 'QB002: extend refused: the lease ended before the verb was called', 'extend does not revive it');
SELECT is(head_of($$SELECT baton.start(tok('a'))$$), 'QB002: start refused: the lease ended before the verb was called', 'start');
SELECT is(head_of($$SELECT FROM baton.release(tok('a'))$$), 'QB002: release refused: the lease ended before the verb was called', 'release');
SELECT is(head_of($$SELECT baton.quarantine(tok('a'))$$), 'QB002: quarantine refused: the lease ended before the verb was called', 'quarantine');
SELECT is(head_of($$SELECT baton.ack_batch(ARRAY[tok('a')])$$), 'QB002: ack_batch refused: the lease ended before the verb was called', 'ack_batch');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'lease_expired', 'settle');
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('a')])), 'lease_expired', 'extend_batch');
SELECT is((SELECT lease_until FROM baton.extend_batch(ARRAY[tok('a')])), NULL, 'without a deadline');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'lease_expired', 'hand_back');
SELECT row_eq(format('SELECT state, generation, failures FROM baton_queue.q WHERE id = %s', (h('a')).id), ROW('ready'::text, 1::bigint, 0), 'none of them has changed a thing');
SELECT clock_to('a', -1500) \g /dev/null
SELECT is(state_of('q', (h('a')).id), 'claimed', 'for a clock before the end it is claimed');
SELECT is(baton.ack(tok('a')), 'acked', 'and can be acknowledged: the deadline decides, no state was written');

-- T2, T3, T4, T5: the message has been claimed again since
RESET pg_baton.clock_offset;
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q') \g /dev/null
SELECT hold('old', 'q', worker => 'w1') AS id \gset
SELECT clock_to('old', 100) \g /dev/null
SELECT hold('new', 'q', worker => 'w1') AS again \gset
SELECT is(:again, :id, 'the same worker claims the same message again');
SELECT is((h('new')).generation, 2::bigint, 'with the next generation');
SELECT is((h('new')).failures, 1, 'the expired claim counts as a failure');
SELECT cmp_ok((h('new')).fence, '>', (h('old')).fence, 'the fence number has grown');
SELECT deadline('new') AS until \gset
SELECT is(error_of($$SELECT baton.ack(tok('old'))$$), format(E'QB001: ack refused: the message has been claimed again since; another claim holds it\nDETAIL: message %s of queue "q": stale_generation: the token is of generation 1; generation 2 is held by w1.\nHINT: Roll back: somebody else may be working on the message. For long work use baton.extend, or a longer lease.', :id), 'ack with the first token');
SELECT is(head_of($$SELECT baton.extend(tok('old'), '60 s')$$), 'QB001: extend refused: the message has been claimed again since; another claim holds it', 'extend by the stale owner');
SELECT is(head_of($$SELECT baton.start(tok('old'))$$), 'QB001: start refused: the message has been claimed again since; another claim holds it', 'start');
SELECT is(head_of($$SELECT FROM baton.release(tok('old'), '0')$$), 'QB001: release refused: the message has been claimed again since; another claim holds it', 'release');
SELECT is(head_of($$SELECT baton.quarantine(tok('old'))$$), 'QB001: quarantine refused: the message has been claimed again since; another claim holds it', 'quarantine');
SELECT results_eq($$SELECT outcome FROM baton.settle(ARRAY[tok('old')], '{ack}') UNION ALL SELECT outcome FROM baton.settle(ARRAY[tok('old')], '{release}') UNION ALL SELECT outcome FROM baton.settle(ARRAY[tok('old')], '{quarantine}')
    UNION ALL SELECT outcome FROM baton.hand_back(ARRAY[tok('old')]) UNION ALL SELECT outcome FROM baton.extend_batch(ARRAY[tok('old')])$$, $$SELECT 'stale_generation' FROM generate_series(1, 5)$$, 'the batch forms');
SELECT row_eq(format('SELECT state, generation, failures, lease_until FROM baton_queue.q WHERE id = %s', :id), ROW('claimed'::text, 2::bigint, 1, :'until'::timestamptz), 'the new claim is untouched: no failure, the same deadline');
SELECT is(baton.ack(tok('new')), 'acked', 'and its acknowledgement counts');
SELECT is(head_of($$SELECT baton.ack(tok('old'))$$), 'QB001: ack refused: the message has been claimed again since; another claim holds it', 'the old token stays stale afterwards');

-- half open: at the deadline the lease is over. The microsecond itself is tested in tests/core; here both sides of it.
RESET pg_baton.clock_offset;
SELECT put('q') \g /dev/null
SELECT hold('e', 'q') AS id \gset
SELECT clock_to('e', -400) \g /dev/null
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('e')], '{release}', '{0}')), 'released', 'D - 0.4 s owns');
RESET pg_baton.clock_offset;
SELECT put('q') \g /dev/null
SELECT hold('e', 'q') AS id \gset
SELECT clock_to('e', 1) \g /dev/null
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('e')], '{ack}')), 'lease_expired', 'D + 1 ms does not');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10) WHERE id = :id), 1, 'and the next claim gets it');

-- every claim counts up, expiry by expiry, to the last
RESET pg_baton.clock_offset;
SELECT baton.fence('q') \g /dev/null
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q') AS first \gset
CREATE TABLE lives (n integer, generation bigint, failures integer, fence bigint);
SET pg_baton.clock_offset = 0;
INSERT INTO lives SELECT 1, generation, failures, fence FROM baton.claim('q');
SET pg_baton.clock_offset = 31000;
INSERT INTO lives SELECT 2, generation, failures, fence FROM baton.claim('q');
SET pg_baton.clock_offset = 62000;
INSERT INTO lives SELECT 3, generation, failures, fence FROM baton.claim('q');
SET pg_baton.clock_offset = 93000;
INSERT INTO lives SELECT 4, generation, failures, fence FROM baton.claim('q');
SET pg_baton.clock_offset = 124000;
INSERT INTO lives SELECT 5, generation, failures, fence FROM baton.claim('q');
SET pg_baton.clock_offset = 155000;
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'the fifth expiry of five attempts');
RESET pg_baton.clock_offset;
SELECT results_eq('SELECT generation, failures FROM lives ORDER BY n', 'VALUES (1::bigint, 0), (2, 1), (3, 2), (4, 3), (5, 4)', 'generations and failures');
SELECT is_empty('SELECT * FROM lives a JOIN lives b ON a.n < b.n WHERE a.fence >= b.fence', 'fence numbers grow');
SELECT row_eq($$SELECT id, cause, generation, failures FROM baton.quarantined('q')$$, ROW(:first::bigint, 'max_attempts'::text, 5::bigint, 5), 'quarantined');

-- the claim ceiling bounds claims that fail nothing
SELECT baton.create_queue('ceiling', max_attempts => 2, claim_ceiling => 3) \gset
SELECT put('ceiling') AS first \gset
SELECT hold('c', 'ceiling') \g /dev/null
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('c')])), 'handed_back', 'handed back once');
SELECT hold('c', 'ceiling') \g /dev/null
SELECT is((SELECT state FROM baton.release(tok('c'), '0', failed => false)), 'ready', 'released without a failure');
SELECT hold('c', 'ceiling') \g /dev/null
SELECT is((h('c')).generation, 3::bigint, 'the third claim of three');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('c')])), 'handed_back', 'handed back again');
SELECT is(hold('c', 'ceiling'), NULL::bigint, 'no fourth');
SELECT row_eq($$SELECT cause, generation, failures FROM baton.quarantined('ceiling')$$, ROW('claim_ceiling'::text, 3::bigint, 0), 'quarantined, without a failure');

-- extend_batch: one answer for each, in input order
SELECT put('q', 4) AS first \gset
SELECT hold('x1', 'q') \g /dev/null
SELECT hold('x2', 'q') \g /dev/null
SELECT hold('x3', 'q') \g /dev/null
SELECT baton.ack(tok('x2')) \g /dev/null
SELECT results_eq($$SELECT ord, outcome, lease_until > clock_timestamp() + '40 s' FROM baton.extend_batch(ARRAY[tok('x3'), 'rubbish', tok('x2'), NULL, tok('x1'), tok('x3')], '45 s')$$,
    $$VALUES (1, 'extended', true), (2, 'invalid_token', NULL), (3, 'already_settled', NULL), (4, 'invalid_token', NULL), (5, 'extended', true), (6, 'extended', true)$$, 'in input order, one bad token affects no other');
SELECT is(ahead(deadline('x1')), 45::numeric, 'extended');
SELECT is_empty($$SELECT * FROM baton.extend_batch('{}')$$, 'no tokens');
SELECT is(head_of($$SELECT FROM baton.extend_batch(NULL)$$), '22023: tokens must not be null', 'null');
SELECT is(head_of($$SELECT FROM baton.extend_batch(ARRAY[tok('x1')], '61 s')$$), '22023: lease is out of range', 'a lease that is too long for one of them');
SELECT is(head_of($$SELECT FROM baton.extend_batch(ARRAY[[tok('x1')], [tok('x3')]])$$), '22023: tokens must have one dimension', 'two dimensions');
SELECT is(head_of('SELECT baton.extend(NULL)'), '22023: token must not be null', 'extend without a token');
SELECT is(head_of('SELECT baton.start(NULL)'), '22023: token must not be null', 'start without a token');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.extend(tok('x1'))$$), '25006: cannot execute extend in a read-only transaction', 'read only: extend');
SELECT is(head_of($$SELECT baton.start(tok('x1'))$$), '25006: cannot execute start in a read-only transaction', 'read only: start');
SELECT is(head_of($$SELECT FROM baton.extend_batch(ARRAY[tok('x1')])$$), '25006: cannot execute extend_batch in a read-only transaction', 'read only: extend_batch');
ROLLBACK;

-- expiry of the message itself while it is claimed: a valid ack wins, afterwards it is not handed out again
SELECT baton.create_queue('mortal', lease => '30 s') \gset
SELECT FROM baton.enqueue_batch('mortal', '{1,2}', expires_ats => ARRAY[clock_timestamp() + '10 s'::interval]);
SELECT hold('m1', 'mortal') \g /dev/null
SELECT hold('m2', 'mortal') \g /dev/null
SET pg_baton.clock_offset = 15000;
SELECT is(baton.ack(tok('m1')), 'acked', 'claimed before it expired, acknowledged after: it counts');
SELECT isnt(baton.extend(tok('m2'), '30 s'), NULL, 'a live claim is not ended by it');
SELECT is((SELECT state FROM baton.release(tok('m2'), '0')), 'expired', 'released');
SELECT is((SELECT count(*)::int FROM baton.claim('mortal')), 0, 'not handed out again');
SELECT is((SELECT count(*)::int FROM baton_queue.mortal), 0, 'and gone');
RESET pg_baton.clock_offset;

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
