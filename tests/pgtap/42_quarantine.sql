-- quarantine: set aside with evidence, in the caller's transaction.
\ir prelude.psql

SELECT plan(35);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT segment('q') AS seg \gset
SELECT (SELECT value FROM baton.describe_queue('q') WHERE option = 'id')::int AS queue_id \gset

SELECT FROM baton.enqueue('q', '{"a": 1}', 'm', 'k', 'c', 5, '{"h": 1}', payload_ref => 'r', expires_at => now() + '1 day');
SELECT hold('a', 'q', worker => 'w1') AS id \gset
SELECT is(baton.quarantine(tok('a'), 'unknown currency', '{"currency": "ZZZ"}'), 'quarantined', 'quarantined');
SELECT row_eq($$SELECT id, cause, reason, worker, generation, failures, message_id, routing_key, message_class, priority, error, headers, payload_ref, payload, payload_bytes FROM baton.quarantined('q')$$,
    ROW(:id::bigint, 'verb'::text, 'unknown currency'::text, 'w1'::text, 1::bigint, 0, 'm'::text, 'k'::text, 'c'::text, 5, '{"currency": "ZZZ"}'::jsonb, '{"h": 1}'::jsonb, 'r'::text, '{"a": 1}'::jsonb, NULL::bytea), 'the message with its evidence');
SELECT ok(quarantined_at BETWEEN clock_timestamp() - '10 s'::interval AND clock_timestamp() AND enqueued_at <= quarantined_at, 'and its times') FROM baton.quarantined('q');
SELECT is(state_of('q', :id), 'gone', 'not in the view');
SELECT is((SELECT count(*)::int FROM :seg WHERE id = :id), 0, 'nor in its segment');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'never handed out');
SELECT alike((SELECT obstacle || ', ' || detail FROM baton.explain_message('q', :id)), 'quarantined, cause: verb, reason: unknown currency, since %', 'explain_message');
SELECT is((SELECT quarantined FROM baton.queue_stats WHERE queue = 'q'), 1, 'queue_stats counts it');
SELECT is(baton.backlog('q')::int, 0, 'it is no backlog');
SELECT is((SELECT (message).expires_at > now() FROM baton_data.quarantined WHERE queue_id = :queue_id), true, 'the whole message is kept');

-- the token afterwards
SELECT is(error_of($$SELECT baton.quarantine(tok('a'))$$), format(E'QB003: quarantine refused: the message was settled before\nDETAIL: message %s of queue "q": already_settled: the message was quarantined.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', :id), 'again');
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), 'QB003: ack refused: the message was settled before', 'ack');
SELECT is((SELECT count(*)::int FROM baton.quarantined('q')), 1, 'one');

-- with less to say
SELECT put('q', 3) AS first \gset
SELECT hold('b', 'q') \g /dev/null
SELECT is(baton.quarantine(tok('b')), 'quarantined', 'without a reason');
SELECT row_eq(format('SELECT reason, error, cause FROM baton.quarantined(%L) WHERE id = %s', 'q', (h('b')).id), ROW(NULL::text, NULL::jsonb, 'verb'::text), 'none is made up');
SELECT isnt((SELECT worker FROM baton.quarantined('q') WHERE id = (h('b')).id), NULL, 'a worker without a name is told apart');
SELECT FROM baton.enqueue_bytes('q', '\x00ff');
SELECT hold('c', 'q') \g /dev/null
SELECT hold('d', 'q') \g /dev/null
SELECT hold('bytes', 'q') \g /dev/null
SELECT is(baton.quarantine(tok('bytes'), ''), 'quarantined', 'an empty reason');
SELECT is((SELECT payload_bytes FROM baton.quarantined('q') WHERE id = (h('bytes')).id), '\x00ff'::bytea, 'bytes');
SELECT is(error_of(format('SELECT baton.quarantine(tok(%L), %L)', 'c', repeat('x', 8193))), E'22023: reason is too long\nDETAIL: It has 8193 bytes; the limit is 8192.', 'a reason that is too long');
SELECT is(head_of(format('SELECT baton.quarantine(tok(%L), error => to_jsonb(%L::text))', 'c', repeat('x', 65529))), '22023: error is too large', 'an error that is too large');
SELECT is(state_of('q', (h('c')).id), 'claimed', 'refused: still claimed');
SELECT is(head_of('SELECT baton.quarantine(NULL)'), '22023: token must not be null', 'no token');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.quarantine(tok('c'))$$), '25006: cannot execute quarantine in a read-only transaction', 'read only');
ROLLBACK;

-- transactional
BEGIN;
SELECT baton.quarantine(tok('c'), 'undone') \g /dev/null
SELECT is((SELECT count(*)::int FROM baton.quarantined('q') WHERE reason = 'undone'), 1, 'seen by its own transaction');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.quarantined('q') WHERE reason = 'undone'), 0, 'rolled back: not set aside');
SELECT is(state_of('q', (h('c')).id), 'claimed', 'claimed as before');
BEGIN;
SAVEPOINT s;
SELECT baton.quarantine(tok('c'), 'undone') \g /dev/null
ROLLBACK TO s;
SELECT is(baton.quarantine(tok('c'), 'done'), 'quarantined', 'in a savepoint, and again');
COMMIT;
SELECT is((SELECT string_agg(reason, ',') FROM baton.quarantined('q') WHERE id = (h('c')).id), 'done', 'once');

-- failures and the generation come along
SELECT baton.create_queue('g', backoff => '0') \gset
SELECT put('g') AS first \gset
SELECT hold('g', 'g') \g /dev/null
SELECT state FROM baton.release(tok('g')) \g /dev/null
SELECT hold('g', 'g') \g /dev/null
SELECT state FROM baton.release(tok('g')) \g /dev/null
SELECT hold('g', 'g') \g /dev/null
SELECT baton.quarantine(tok('g'), 'enough') \g /dev/null
SELECT row_eq($$SELECT generation, failures FROM baton.quarantined('g')$$, ROW(3::bigint, 2), 'quarantine by verb counts no failure');

-- large
SELECT baton.create_queue('large', max_payload_bytes => 4000000) \gset
CREATE TABLE blob AS SELECT string_agg(md5(i::text), '')::bytea AS b FROM generate_series(1, 50000) i;
SELECT FROM blob, baton.enqueue_bytes('large', b);
SELECT hold('l', 'large') \g /dev/null
SELECT baton.quarantine(tok('l')) \g /dev/null
SELECT is((SELECT count(*)::int FROM baton.quarantined('large'), blob WHERE payload_bytes = b), 1, '1.6 MB are kept whole');

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is(head_of($$SELECT baton.drop_queue('g')$$), '55000: queue "g" is not empty', 'quarantined messages keep a queue from being dropped');
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
