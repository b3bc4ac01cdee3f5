-- settle and settle_and_claim: verdicts of their own for each token, one outcome for each, in input order.
\ir prelude.psql

SELECT plan(68);
SELECT baton.create_queue('q', backoff => '0', max_attempts => 3, max_delay => '10 days') \gset
SELECT put('q', 30) AS first \gset
SELECT hold('s' || i, 'q') FROM generate_series(1, 12) i \g /dev/null

-- one of each
SELECT results_eq($$SELECT ord, outcome FROM baton.settle(ARRAY[tok('s1'), tok('s2'), tok('s3'), tok('s4')], '{ack,release,release_unfailed,quarantine}', '{NULL,1 h,0,NULL}', '{NULL,slow,NULL,bad}')$$,
    $$VALUES (1, 'acked'), (2, 'scheduled'), (3, 'released'), (4, 'quarantined')$$, 'all four verdicts');
SELECT is(state_of('q', (h('s1')).id), 'gone', 'acknowledged');
SELECT row_eq(format('SELECT state, failures FROM baton_queue.q WHERE id = %s', (h('s2')).id), ROW('scheduled'::text, 1), 'released with a delay: a failure');
SELECT row_eq(format('SELECT state, failures FROM baton_queue.q WHERE id = %s', (h('s3')).id), ROW('ready'::text, 0), 'released without a failure');
SELECT row_eq($$SELECT id, cause, reason FROM baton.quarantined('q')$$, ROW((h('s4')).id, 'verb'::text, 'bad'::text), 'quarantined with its reason');
SELECT is((SELECT reason FROM baton.evidence('q', (h('s2')).id)), 'slow', 'and the reason of the release is kept');

-- one for all
SELECT results_eq($$SELECT ord, outcome FROM baton.settle(ARRAY[tok('s5'), tok('s6')], '{ack}')$$, $$VALUES (1, 'acked'), (2, 'acked')$$, 'one verdict for all');
SELECT results_eq($$SELECT ord, outcome FROM baton.settle(ARRAY[tok('s7'), tok('s8')], '{release}', '{0}', '{again}')$$, $$VALUES (1, 'released'), (2, 'released')$$, 'one delay and one reason for all');
SELECT is((SELECT count(*)::int FROM baton.evidence('q', (h('s8')).id) WHERE reason = 'again'), 1, 'that reason');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('s9')], '{release}', NULL, NULL)), 'released', 'no delay: the backoff, which is none here');

-- none, and wrong numbers
SELECT is_empty($$SELECT * FROM baton.settle('{}', '{}')$$, 'no tokens');
SELECT is_empty($$SELECT * FROM baton.settle('{}', '{ack}')$$, 'a verdict for all of none');
SELECT is(head_of($$SELECT FROM baton.settle(NULL, '{ack}')$$), '22023: tokens must not be null', 'null tokens');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], NULL)$$), '22023: verdicts must not be null', 'null verdicts');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{NULL}')$$), '22023: verdicts must not contain nulls', 'a null verdict');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{}')$$), '22023: verdicts has the wrong number of elements', 'no verdict');
SELECT is(error_of($$SELECT FROM baton.settle(ARRAY[tok('s10'), tok('s11'), tok('s12')], '{ack,ack}')$$), E'22023: verdicts has the wrong number of elements\nDETAIL: It has 2; expected is 3, or 1 that holds for all.', 'two of three');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10'), tok('s11'), tok('s12')], '{ack}', '{0,0}')$$), '22023: delays has the wrong number of elements', 'delays');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10'), tok('s11'), tok('s12')], '{ack}', NULL, '{a,b}')$$), '22023: reasons has the wrong number of elements', 'reasons');
SELECT is(error_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{nack}')$$), E'22023: verdict "nack" is unknown\nHINT: Verdicts are ack, release, release_unfailed, quarantine.', 'no such verdict');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{ACK}')$$), '22023: verdict "ACK" is unknown', 'nor in capitals');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{hand_back}')$$), '22023: verdict "hand_back" is unknown', 'hand_back does not join a transaction');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{release}', '{-1 s}')$$), '22023: delays is out of range', 'a negative delay');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{release}', '{11 days}')$$), '22023: delays is out of range', 'beyond max_delay');
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('s10')], '{release}', '{1 mon}')$$), '22023: delays must not contain months or years', 'a month');
SELECT is(head_of(format('SELECT FROM baton.settle(ARRAY[tok(%L)], %L, NULL, ARRAY[%L])', 's10', '{release}', repeat('x', 8193))), '22023: reasons is too long', 'a long reason');
SELECT is(head_of($$SELECT FROM baton.settle(array_fill('x'::text, ARRAY[100001]), '{ack}')$$), '22023: tokens has too many elements', 'too many');
SELECT is(state_of('q', (h('s10')).id) || state_of('q', (h('s11')).id), 'claimedclaimed', 'what was refused settled none');

-- T50: one bad token affects no other
SELECT results_eq($$SELECT ord, outcome FROM baton.settle(ARRAY['rubbish', tok('s10'), NULL, tok('s1'), tok('s11'), tok('s10'), ''], '{ack}')$$,
    $$VALUES (1, 'invalid_token'), (2, 'acked'), (3, 'invalid_token'), (4, 'already_settled'), (5, 'acked'), (6, 'already_settled'), (7, 'invalid_token')$$, 'in input order; the same token twice: once');
SELECT results_eq($$SELECT ord, outcome FROM baton.settle(ARRAY[tok('s12'), tok('s12')], '{release,ack}', '{0}')$$, $$VALUES (1, 'released'), (2, 'already_settled')$$, 'released and acknowledged in one call: the first counts');

-- the last failure quarantines, whatever the delay
SELECT baton.create_queue('last', max_attempts => 1) \gset
SELECT put('last') AS first \gset
SELECT hold('l', 'last') \g /dev/null
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('l')], '{release}', '{1 h}', '{final}')), 'quarantined', 'the last failure');
SELECT is((SELECT cause || ', ' || reason FROM baton.quarantined('last')), 'max_attempts, final', 'with its reason');

-- it reports, and never raises for a token; it joins the transaction
SELECT hold('t' || i, 'q') FROM generate_series(1, 6) i \g /dev/null
BEGIN;
SELECT is((SELECT string_agg(outcome, ',') FROM baton.settle(ARRAY[tok('t1'), tok('s1')], '{ack}')), 'acked,already_settled', 'reported');
ROLLBACK;
SELECT is(state_of('q', (h('t1')).id), 'claimed', 'rolled back');
BEGIN;
SAVEPOINT a;
SELECT outcome FROM baton.settle(ARRAY[tok('t1'), tok('t2')], '{ack}') \g /dev/null
ROLLBACK TO a;
SELECT is((SELECT string_agg(outcome, ',') FROM baton.settle(ARRAY[tok('t1')], '{ack}')), 'acked', 'after a savepoint was rolled back');
COMMIT;
SELECT is(state_of('q', (h('t1')).id) || ' ' || state_of('q', (h('t2')).id), 'gone claimed', 'as it was committed');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.settle(ARRAY[tok('t2')], '{ack}')$$), '25006: cannot execute settle in a read-only transaction', 'read only');
ROLLBACK;

-- thousands, over pages, segments and queues, in random order
SELECT baton.create_queue('many', segment_bytes => 65536) \gset
SELECT baton.enqueue_batch('many', ARRAY(SELECT to_jsonb(repeat('x', 200)) FROM generate_series(1, 300))) FROM generate_series(1, 10) \g /dev/null
SELECT cmp_ok((SELECT count(*)::int FROM baton.segments WHERE queue = 'many' AND unsettled > 0), '>', 1, 'in more than one segment');
CREATE TABLE many AS SELECT token, row_number() OVER (ORDER BY md5(token)) AS n FROM baton.claim('many', max_items => 5000);
SELECT is((SELECT count(*)::int FROM many), 3000, '3000 are claimed');
CREATE TABLE verdicts AS SELECT token, n, (ARRAY['ack', 'release', 'release_unfailed', 'quarantine'])[1 + n % 4] AS verdict FROM many ORDER BY n;
CREATE TABLE outcomes AS SELECT s.* FROM (SELECT array_agg(token ORDER BY n) t, array_agg(verdict ORDER BY n) v FROM verdicts) a, LATERAL baton.settle(a.t, a.v, '{0}') s;
SELECT is_empty($$SELECT v.verdict, o.outcome FROM verdicts v JOIN outcomes o ON o.ord = v.n
    WHERE o.outcome <> CASE v.verdict WHEN 'ack' THEN 'acked' WHEN 'quarantine' THEN 'quarantined' ELSE 'released' END$$, 'each has its own verdict');
SELECT is((SELECT count(*)::int FROM baton.quarantined('many')), 750, 'quarantined');
SELECT is(baton.backlog('many')::int, 1500, 'released');
SELECT is((SELECT sum(failures)::int FROM baton_queue.many), 750, 'half of them with a failure');
SELECT sound('many');

-- settle_and_claim: first the outcomes, then the deliveries
SELECT results_eq($$SELECT ord, outcome, token IS NULL, id IS NOT NULL, generation FROM baton.settle_and_claim('q', ARRAY[tok('t2'), 'rubbish'], max_items => 2)$$,
    $$VALUES (1, 'acked', true, false, NULL::bigint), (2, 'invalid_token', true, false, NULL), (NULL, NULL, false, true, 1), (NULL, NULL, false, true, 1)$$, 'outcomes in input order, then deliveries');
SELECT baton.create_queue('sc', backoff => '0', lease => '20 s', max_attempts => 5) \gset
SELECT FROM baton.enqueue('sc', '{"a": 1}', 'm', 'k', 'c', 5, '{"h": 1}', payload_ref => 'r', expires_at => now() + '1 day');
SELECT put('sc', 5) AS first \gset
CREATE TABLE sc AS SELECT * FROM baton.settle_and_claim('sc', NULL, worker => 'w5', lease => '5 s');
SELECT row_eq($$SELECT message_id, routing_key, message_class, priority, generation, failures, headers, payload, payload_bytes, payload_ref FROM sc$$,
    ROW('m'::text, 'k'::text, 'c'::text, 5, 1::bigint, 0, '{"h": 1}'::jsonb, '{"a": 1}'::jsonb, NULL::bytea, 'r'::text), 'without tokens it claims');
SELECT ok(lease_until BETWEEN clock_timestamp() + '4 s' AND clock_timestamp() + '5 s' AND fence > 0, 'with a lease and a fence number') FROM sc;
SELECT is((SELECT worker FROM baton.in_flight WHERE queue = 'sc'), 'w5', 'for a worker');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('sc', ARRAY(SELECT token FROM sc))), 2, 'ack is the default verdict; one outcome, one delivery');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('sc', '{}', max_items => 3)), 3, 'an empty array is no token');
SELECT hold('sc1', 'sc') \g /dev/null
SELECT results_eq($$SELECT outcome, (payload ->> 'n')::int, generation, failures FROM baton.settle_and_claim('sc', ARRAY[tok('sc1')], '{release}', delays => '{0}')$$,
    $$VALUES ('released', NULL::int, NULL::bigint, NULL::int)$$, 'what it releases is not ready before the commit');
SELECT is((SELECT failures FROM baton.claim('sc')), 1, 'but afterwards');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('sc', NULL, max_items => 10)), 0, 'nothing left');
SELECT is((SELECT count(*)::int FROM baton.settle_and_claim('sc', NULL, classes => '{c}')), 0, 'by class');
SELECT is(head_of($$SELECT FROM baton.settle_and_claim('sc', NULL, max_items => 0)$$), '22023: max_items is out of range', 'max_items');
SELECT is(head_of($$SELECT FROM baton.settle_and_claim('sc', NULL, lease => '0')$$), '22023: lease is out of range', 'lease');
SELECT is(head_of($$SELECT FROM baton.settle_and_claim('sc', NULL, max_bytes => 0)$$), '22023: max_bytes must be positive', 'max_bytes');
SELECT is(head_of($$SELECT FROM baton.settle_and_claim('sc', '{x}', '{nack}')$$), '22023: verdict "nack" is unknown', 'verdict');
SELECT put('sc', 2) AS first \gset
SELECT hold('sc1', 'sc') \g /dev/null
BEGIN;
SELECT count(*) FROM baton.settle_and_claim('sc', ARRAY[tok('sc1')]) \g /dev/null
ROLLBACK;
SELECT is(state_of('sc', (h('sc1')).id), 'claimed', 'rolled back: the settlement is undone');
SELECT is(baton.ack(tok('sc1')), 'acked', 'and its token works');
SELECT is((SELECT failures FROM baton.claim('sc')), 1, 'the claim is void and counts');
-- a token of another queue is settled there
SELECT hold('elsewhere', 'q') \g /dev/null
SELECT is((SELECT outcome FROM baton.settle_and_claim('sc', ARRAY[tok('elsewhere')]) WHERE ord = 1), 'acked', 'a token of another queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.settle_and_claim('sc', NULL)$$), '25006: cannot execute settle_and_claim in a read-only transaction', 'read only');
ROLLBACK;
SELECT baton.pause('sc') \g /dev/null
SELECT put('sc') AS first \gset
SELECT hold('t6', 'q') \g /dev/null
SELECT is((SELECT string_agg(coalesce(outcome, 'delivery'), ',') FROM baton.settle_and_claim('sc', ARRAY[tok('t6')])), 'acked', 'paused: it settles and claims nothing');

SELECT sound(name) FROM baton.queues WHERE name <> 'many' ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
