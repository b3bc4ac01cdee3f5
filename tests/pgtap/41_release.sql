-- release: backoff, delays, failures and the last one; evidence; what becomes of the token.
\ir prelude.psql

SELECT plan(73);
SELECT baton.create_queue('q', max_attempts => 10, claim_ceiling => 20, backoff => '4 s', max_backoff => '20 s', max_delay => '10 days') \gset
CREATE FUNCTION wait_of(name text) RETURNS numeric LANGUAGE sql AS $$ SELECT round(EXTRACT(epoch FROM not_before - clock_timestamp() - current_setting('pg_baton.clock_offset')::interval)) FROM baton_queue.q WHERE id = (h(wait_of.name)).id $$;

-- without a delay: the queue's backoff, doubling
SELECT put('q') AS first \gset
SELECT hold('a', 'q') \g /dev/null
SELECT row_eq($$SELECT state, not_before - clock_timestamp() BETWEEN '3.9 s' AND '4.42 s', failures FROM baton.release(tok('a'))$$, ROW('scheduled'::text, true, 1), 'the first failure: the backoff');
SELECT row_eq(format('SELECT state, failures, generation, worker, lease_until FROM baton_queue.q WHERE id = %s', :first), ROW('scheduled'::text, 1, 1::bigint, NULL::text, NULL::timestamptz), 'as the view shows it');
SELECT is(wait_of('a'), 4::numeric, 'four seconds');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'not handed out before');
SET pg_baton.clock_offset = '5 s';
SELECT is(hold('a', 'q'), :first, 'handed out after');
SELECT row_eq($$SELECT (h('a')).generation, (h('a')).failures$$, ROW(2::bigint, 1), 'generation 2, one failure');
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('a'))$$, ROW('scheduled'::text, 2), 'the second failure');
SELECT ok(wait_of('a') BETWEEN 8 AND 9, 'twice as long');
SET pg_baton.clock_offset = '20 s';
SELECT hold('a', 'q') \g /dev/null
SELECT failures FROM baton.release(tok('a')) \g /dev/null
SELECT ok(wait_of('a') BETWEEN 16 AND 18, 'the third: four times');
SET pg_baton.clock_offset = '40 s';
SELECT hold('a', 'q') \g /dev/null
SELECT failures FROM baton.release(tok('a')) \g /dev/null
SELECT ok(wait_of('a') BETWEEN 20 AND 22, 'the fourth: the longest backoff');
SET pg_baton.clock_offset = '70 s';

-- with a delay
SELECT hold('a', 'q') \g /dev/null
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('a'), '1 min')$$, ROW('scheduled'::text, 5), 'a delay of one''s own');
SELECT is(wait_of('a'), 60::numeric, 'a minute');
SET pg_baton.clock_offset = '140 s';
SELECT hold('a', 'q') \g /dev/null
SELECT row_eq($$SELECT state, not_before, failures FROM baton.release(tok('a'), '0')$$, ROW('ready'::text, NULL::timestamptz, 6), 'zero means now, and overrides the backoff');
SELECT is(hold('a', 'q'), :first, 'handed out at once');
SELECT is((h('a')).failures, 6, 'with its failures');
RESET pg_baton.clock_offset;
SELECT put('q', 30) AS first \gset
SELECT hold('d', 'q') \g /dev/null
SELECT is((SELECT state FROM baton.release(tok('d'), '10 days')), 'scheduled', 'the longest delay');
SELECT hold('d', 'q') \g /dev/null
SELECT is(error_of($$SELECT FROM baton.release(tok('d'), '10 days 0.000001 s')$$), E'22023: delay is out of range\nDETAIL: It is 10 days 00:00:00.000001; allowed is 00:00:00 to 240:00:00.', 'longer');
SELECT is(head_of($$SELECT FROM baton.release(tok('d'), '-0.000001 s')$$), '22023: delay is out of range', 'negative');
SELECT is(head_of($$SELECT FROM baton.release(tok('d'), '1 month')$$), '22023: delay must not contain months or years', 'a month');
SELECT is(head_of($$SELECT FROM baton.release(tok('d'), '2147483647 days 2562047788:00:54')$$), '22023: delay is out of range', 'an age');
SELECT is(state_of('q', (h('d')).id), 'claimed', 'what was refused changed nothing');
SELECT clock_timestamp() AS before \gset
SELECT row_eq(format('SELECT state, not_before > %L, not_before < clock_timestamp() + %L FROM baton.release(tok(%L), %L)', :'before', '10 ms', 'd', '0.000001 s'), ROW('scheduled'::text, true, true), 'a microsecond: never early, and hardly late');

-- not a failure
SELECT baton.create_queue('n', backoff => '4 s') \gset
SELECT put('n', 3) \g /dev/null
SELECT hold('u', 'n') \g /dev/null
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('u'), '0', failed => false)$$, ROW('ready'::text, 0), 'failed => false counts none');
SELECT is(failures_of('n', (h('u')).id), 0, 'none');
SELECT hold('u', 'n') \g /dev/null
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('u'), failed => false)$$, ROW('scheduled'::text, 0), 'without a delay it waits for the first backoff all the same');
SELECT ok(not_before - clock_timestamp() BETWEEN '3 s' AND '4.42 s', 'four seconds') FROM baton_queue.n WHERE id = (h('u')).id;
SELECT hold('u', 'n') \g /dev/null
SELECT row_eq($$SELECT failures FROM baton.release(tok('u'), '0', failed => NULL)$$, ROW(1), 'failed => null is a failure');

-- the token afterwards
SELECT baton.create_queue('t', backoff => '0', max_attempts => 3) \gset
SELECT put('t') AS first \gset
SELECT hold('t1', 't') \g /dev/null
SELECT is((SELECT state FROM baton.release(tok('t1'))), 'ready', 'no backoff: ready');
SELECT is(error_of($$SELECT FROM baton.release(tok('t1'))$$), format(E'QB003: release refused: the message was settled before\nDETAIL: message %s of queue "t": already_settled: the message was released.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', :first), 'released again');
SELECT is(failures_of('t', :first), 1, 'no second failure');
SELECT is(head_of($$SELECT baton.ack(tok('t1'))$$), 'QB003: ack refused: the message was settled before', 'ack after release');
SELECT is(head_of($$SELECT baton.extend(tok('t1'))$$), 'QB003: extend refused: the message was settled before', 'extend after release');
SELECT hold('t2', 't') \g /dev/null
SELECT is(head_of($$SELECT FROM baton.release(tok('t1'))$$), 'QB001: release refused: the message has been claimed again since; another claim holds it', 'after the next claim it is stale');
SELECT row_eq(format('SELECT state, failures FROM baton_queue.t WHERE id = %s', :first), ROW('claimed'::text, 1), 'that claim is untouched');

-- T14, T17: the last failure quarantines, at once, also with a delay
SELECT is((SELECT state FROM baton.release(tok('t2'), '0')), 'ready', 'the second of three');
SELECT hold('t3', 't') \g /dev/null
SELECT row_eq($$SELECT state, not_before, failures FROM baton.release(tok('t3'), '1 h', 'gave up', error => '{"code": 7}')$$, ROW('quarantined'::text, NULL::timestamptz, 3), 'the third: quarantined, not delayed');
SELECT is(state_of('t', :first), 'gone', 'not in the view any more');
SELECT row_eq($$SELECT id, cause, reason, generation, failures, error, payload FROM baton.quarantined('t')$$, ROW(:first::bigint, 'max_attempts'::text, 'gave up'::text, 3::bigint, 3, '{"code": 7}'::jsonb, '{"n": 1}'::jsonb), 'with the reason and the error');
SELECT is(error_of($$SELECT baton.ack(tok('t3'))$$), format(E'QB003: ack refused: the message was settled before\nDETAIL: message %s of queue "t": already_settled: the message was quarantined.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', :first), 'its token says what happened');
SELECT baton.create_queue('one', max_attempts => 1) \gset
SELECT put('one', 2) AS first \gset
SELECT hold('o', 'one') \g /dev/null
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('o'))$$, ROW('quarantined'::text, 1), 'N = 1: the first failure');
SELECT hold('o', 'one') \g /dev/null
SELECT row_eq($$SELECT state, failures FROM baton.release(tok('o'), '0', failed => false)$$, ROW('ready'::text, 0), 'unless it is none');
BEGIN;
SELECT hold('o', 'one') \g /dev/null
COMMIT;
BEGIN;
SELECT is((SELECT state FROM baton.release(tok('o'))), 'quarantined', 'quarantined by its last failure');
ROLLBACK;
SELECT is(state_of('one', (h('o')).id), 'claimed', 'rolled back: claimed as before');
SELECT is((SELECT count(*)::int FROM baton.quarantined('one')), 1, 'and not quarantined as well');
SELECT is(failures_of('one', (h('o')).id), 0, 'no failure');
SELECT is(baton.ack(tok('o')), 'acked', 'and can be acknowledged');
SELECT baton.create_queue('two', max_attempts => 2, backoff => '0') \gset
SELECT put('two') AS first \gset
SELECT hold('o', 'two') \g /dev/null
SELECT is((SELECT state FROM baton.release(tok('o'))), 'ready', 'N = 2: the first failure');
SELECT hold('o', 'two') \g /dev/null
SELECT is((SELECT state FROM baton.release(tok('o'))), 'quarantined', 'the second');

-- evidence
SELECT put('t') AS first \gset
SELECT hold('e', 't', worker => 'w9') \g /dev/null
SELECT state FROM baton.release(tok('e'), '0', 'timeout', error => '{"try": 1}') \g /dev/null
SELECT hold('e', 't', worker => 'w8') \g /dev/null
SELECT state FROM baton.release(tok('e'), '0', failed => false) \g /dev/null
SELECT hold('e', 't', worker => 'w7') \g /dev/null
SELECT state FROM baton.release(tok('e'), '0', 'throttled', false) \g /dev/null
SELECT results_eq(format('SELECT generation, failures, worker, verdict, reason, error FROM baton.evidence(%L, %s)', 't', :first), $$VALUES
    (1::bigint, 1, 'w9', 'release', 'timeout', '{"try": 1}'::jsonb), (3, 1, 'w7', 'release', 'throttled', NULL)$$, 'reasons and errors are kept, where there are any');
SELECT is(error_of(format('SELECT FROM baton.release(tok(%L), reason => %L)', 'u', repeat('x', 8193))), E'22023: reason is too long\nDETAIL: It has 8193 bytes; the limit is 8192.', 'a reason that is too long');
SELECT is(split_part(error_of(format('SELECT FROM baton.release(tok(%L), error => to_jsonb(%L::text))', 'u', repeat('x', 65529))), E'\n', 2), 'DETAIL: It has 65537 bytes; the limit is 65536.', 'an error that is too large');
SELECT put('t') AS first \gset
SELECT hold('e', 't') AS eid \gset
BEGIN;
SELECT state FROM baton.release(tok('e'), '0', 'undone') \g /dev/null
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.evidence('t', :eid)) , (SELECT count(*)::int FROM baton.evidence('t', :eid) WHERE reason <> 'undone'), 'evidence of a release that was rolled back is none');
SELECT is((SELECT state FROM baton.release(tok('e'), '0', repeat('x', 8192), error => to_jsonb(repeat('x', 65528)))), 'ready', 'the longest reason, the largest error');

-- transactional, with savepoints
SELECT baton.create_queue('s', backoff => '0') \gset
SELECT put('s') AS first \gset
SELECT hold('s', 's') \g /dev/null
BEGIN;
SELECT is((SELECT state FROM baton.release(tok('s'), '0')), 'ready', 'released');
SELECT is((SELECT count(*)::int FROM baton.claim('s')), 0, 'not handed out before the commit');
SELECT is(head_of($$SELECT FROM baton.release(tok('s'))$$), 'QB003: release refused: the message was settled before', 'released by this transaction already');
COMMIT;
SELECT is(hold('s', 's'), :first, 'handed out after it');
BEGIN;
SELECT state FROM baton.release(tok('s'), '0') \g /dev/null
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.claim('s')), 0, 'rolled back: still held');
SELECT is(failures_of('s', :first), 1, 'without another failure');
BEGIN;
SAVEPOINT a;
SELECT state FROM baton.release(tok('s'), '1 h') \g /dev/null
ROLLBACK TO a;
SELECT state FROM baton.release(tok('s'), '0') \g /dev/null
COMMIT;
SELECT is(hold('s', 's'), :first, 'the release that committed counts');
SELECT is((h('s')).failures, 2, 'once');

-- many failures: delays far beyond the lease, before and after it
SELECT baton.create_queue('far', max_delay => '180 days', max_lease => '7 days', max_lifetime => '30 days') \gset
SELECT put('far', 2) AS first \gset
SELECT hold('f', 'far', '7 days') \g /dev/null
SELECT state FROM baton.release(tok('f'), '180 days') \g /dev/null
SELECT ok(not_before - now() BETWEEN '179 days 23:59' AND '180 days 00:00:01', '180 days beside a lease of seven') FROM baton_queue.far WHERE id = :first;
SELECT hold('f', 'far', '0.1 s') \g /dev/null
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('f')], '{release}', '{180 days}')) IN ('scheduled', 'lease_expired'), true, 'and beside one of a tenth of a second');

SELECT is(head_of('SELECT FROM baton.release(NULL)'), '22023: token must not be null', 'no token');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.release(tok('s'))$$), '25006: cannot execute release in a read-only transaction', 'read only');
ROLLBACK;
SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
