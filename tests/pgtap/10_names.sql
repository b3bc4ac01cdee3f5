-- Queue names: any text of 1 to 63 bytes, exactly as given, in every path.
\ir prelude.psql

CREATE TABLE names (n integer GENERATED ALWAYS AS IDENTITY, name text);
INSERT INTO names (name) VALUES
    ('orders'), ('MyQueue'), ('myqueue'), (repeat('Ü', 31)), (repeat('x', 63)), ('a"b'), ('a.b'), (' x'), ('x '), ('select'),
    ('🐘 queue'), ('my-queue'), ($$it's$$), ('back\slash'), ('%I%s$1'), (E'line\nbreak'), ('q1_0'), ('"'), ('"quoted"'), ('…'), ('pg_temp'),
    ('d$$d'), ('0');

-- Each name through every way of enqueueing.
CREATE FUNCTION walk(name text) RETURNS TABLE (path text, answer text) LANGUAGE plpgsql AS $$
DECLARE
    view text := format('baton_queue.%I', name);
BEGIN
    RETURN QUERY SELECT 'enqueue', x.state FROM baton.enqueue(name, to_jsonb(name)) x;
    RETURN QUERY SELECT 'enqueue_bytes', x.state FROM baton.enqueue_bytes(name, 'x') x;
    RETURN QUERY SELECT 'enqueue_batch', x.state FROM baton.enqueue_batch(name, ARRAY[to_jsonb(name)]) x;
    RETURN QUERY SELECT 'enqueue_batch_bytes', x.state FROM baton.enqueue_batch_bytes(name, ARRAY['x'::bytea]) x;
    EXECUTE format('INSERT INTO %s (payload) VALUES ($1)', view) USING to_jsonb(name);
    CREATE TABLE business (t text);
    EXECUTE format('CREATE TRIGGER o AFTER INSERT ON business REFERENCING NEW TABLE AS r FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox(%L)', name);
    INSERT INTO business VALUES (name);
    DROP TABLE business;
    RETURN QUERY EXECUTE format('SELECT ''messages in the view'', count(*)::text FROM %s', view);
END $$;

SELECT plan(55);

SELECT is((SELECT count(*) FROM names WHERE baton.create_queue(name))::int, (SELECT count(*) FROM names)::int, 'all names are taken');
SELECT set_eq('SELECT name FROM baton.queues', 'SELECT name FROM names', 'baton.queues shows them as given');
SELECT set_eq($$SELECT relname::text FROM pg_class WHERE relnamespace = 'baton_queue'::regnamespace AND relkind = 'v'$$, 'SELECT name FROM names',
              'and so are their views named');

CREATE TABLE walked AS SELECT n.name, w.* FROM names n, walk(n.name) w;
SELECT is_empty($$SELECT * FROM walked WHERE path LIKE 'enqueue%' AND answer <> 'ready'$$, 'every form of enqueue');
SELECT is_empty($$SELECT * FROM walked WHERE path = 'messages in the view' AND answer <> '6'$$, 'INSERT into the view and the outbox trigger');
SELECT is((SELECT count(*)::int FROM walked), (SELECT 5 * count(*)::int FROM names), 'no path was left out');

-- COPY, and queries that write the name themselves
SELECT format($$COPY baton_queue.%I (payload) FROM PROGRAM 'echo 7'$$, name) FROM names ORDER BY n \gexec
SELECT is_empty($$SELECT name FROM names n, LATERAL (SELECT baton.backlog(n.name) b) b WHERE b <> 7$$, 'COPY into the view, backlog');

CREATE TABLE claimed AS SELECT n.name, c.* FROM names n, LATERAL baton.claim(n.name, max_items => 4) c;
SELECT is_empty($$SELECT name FROM names n WHERE 4 <> (SELECT count(*) FROM claimed c WHERE c.name = n.name)$$, 'claim');
SELECT is((SELECT count(*)::int FROM claimed WHERE payload = to_jsonb(name)), (SELECT 2 * count(*)::int FROM names), 'a queue hands out its own messages');
SELECT is_empty($$SELECT * FROM claimed WHERE payload_bytes IS NULL AND payload <> to_jsonb(name)$$, 'and no other queue''s');
CREATE TABLE outcomes AS SELECT s.outcome FROM (SELECT array_agg(token) t FROM claimed) a, LATERAL baton.settle(a.t, '{ack}') s;
SELECT is_empty($$SELECT * FROM outcomes WHERE outcome <> 'acked'$$, 'their tokens settle them');
CREATE TABLE taken AS SELECT n.name, t.* FROM names n, LATERAL baton.take(n.name, 10) t;
SELECT is_empty($$SELECT name FROM names n WHERE 3 <> (SELECT count(*) FROM taken t WHERE t.name = n.name)$$, 'take');
SELECT is((SELECT count(DISTINCT baton.channel(name))::int FROM names WHERE baton.channel(name) ~ '^baton_[0-9]+$'), (SELECT count(*)::int FROM names), 'each has a channel of its own, with a plain name');
SELECT is_empty($$SELECT name FROM names n WHERE baton.why_empty(n.name) <> 'empty'$$, 'why_empty');
SELECT is_empty($$SELECT name FROM names n, baton.explain_message(n.name, 1) e WHERE e.obstacle <> 'settled'$$, 'explain_message');
SELECT is_empty($$SELECT name FROM names n, LATERAL baton.describe_queue(n.name) d WHERE d.option = 'paused' AND d.value <> 'false'$$, 'describe_queue');
SELECT is_empty($$SELECT name FROM names n, LATERAL baton.quarantined(n.name) d$$, 'quarantined');
SELECT is_empty($$SELECT name FROM names n, LATERAL baton.evidence(n.name, 1) d$$, 'evidence');
SELECT is_empty($$SELECT name FROM names n, LATERAL baton.check(n.name) d$$, 'check finds all of them sound');

SELECT lives_ok($$SELECT baton.pause(name) FROM names$$, 'pause');
SELECT is((SELECT count(*)::int FROM baton.queues WHERE state = 'paused'), (SELECT count(*)::int FROM names), 'all are paused');
SELECT lives_ok($$SELECT baton.resume(name) FROM names$$, 'resume');
SELECT is((SELECT count(*)::int FROM baton.queues WHERE state = 'active'), (SELECT count(*)::int FROM names), 'all are active again');
SELECT lives_ok($$SELECT baton.fence(name), baton.adopt(name), baton.activate(name) FROM names$$, 'fence, adopt, activate');
SELECT lives_ok($$SELECT baton.alter_queue(name, max_attempts => 3) FROM names$$, 'alter_queue');
SELECT is((SELECT count(*)::int FROM baton.queues WHERE max_attempts = 3), (SELECT count(*)::int FROM names), 'all are altered');

-- procedures
CREATE TABLE waited (name text, reason text);
DO $$
DECLARE
    name text; reason text; queue text;
BEGIN
    FOREACH name IN ARRAY (SELECT array_agg(n.name) FROM names n) LOOP
        CALL baton.wait(name, '0 s', reason);
        CALL baton.wait_any(ARRAY[name], '0 s', queue);
        INSERT INTO waited VALUES (name, reason || coalesce(queue, ''));
    END LOOP;
END $$;
SELECT is((SELECT count(*)::int FROM waited WHERE reason = 'timeout'), (SELECT count(*)::int FROM names), 'wait and wait_any');
SELECT FROM baton.enqueue('MyQueue', '1');
CALL baton.wait('MyQueue', '10 s') \gset
SELECT is(:'reason'::text, 'ready', 'wait finds MyQueue''s message');
CALL baton.wait('myqueue', '0 s') \gset
SELECT is(:'reason'::text, 'timeout', 'and none in myqueue');
CALL baton.wait_any(ARRAY['myqueue', 'MyQueue', 'a"b'], '10 s') \gset
SELECT is(:'queue'::text, 'MyQueue', 'wait_any names it as it is');
CALL baton.maintain('🐘 queue');
SELECT is((SELECT count(*)::int FROM baton.take('MyQueue', 10)), 1, 'the message was where it belongs');

-- two queues that differ in case only share nothing
SELECT FROM baton.enqueue('MyQueue', '"upper"');
SELECT FROM baton.enqueue('myqueue', '"lower"');
SELECT is((SELECT payload FROM baton.take('MyQueue', 10)), '"upper"', 'MyQueue');
SELECT is((SELECT payload FROM baton.take('myqueue', 10)), '"lower"', 'myqueue');
SELECT ok(baton.drop_queue('myqueue'), 'dropping one');
SELECT FROM baton.enqueue('MyQueue', '"still"');
SELECT is((SELECT payload FROM baton.take('MyQueue', 10)), '"still"', 'leaves the other');
SELECT is(head_of($$SELECT FROM baton.enqueue('MYQUEUE', '1')$$), '42704: queue "MYQUEUE" does not exist', 'no folding of case');
SELECT is(head_of($$SELECT FROM baton.enqueue('orders ', '1')$$), '42704: queue "orders " does not exist', 'no trimming');
DELETE FROM names WHERE name = 'myqueue';

-- too long, empty, null: refused, never truncated
SELECT is(error_of(format('SELECT baton.create_queue(%L)', repeat('x', 64))), E'22023: a queue name must have 1 to 63 bytes\nDETAIL: The name given has 64.', '64 bytes');
SELECT is(error_of(format('SELECT baton.create_queue(%L)', repeat('Ü', 32))), E'22023: a queue name must have 1 to 63 bytes\nDETAIL: The name given has 64.', '64 bytes in 32 characters');
SELECT is(error_of($$SELECT baton.create_queue('')$$), E'22023: a queue name must have 1 to 63 bytes\nDETAIL: The name given has 0.', 'empty');
SELECT is(error_of($$SELECT baton.create_queue(NULL)$$), '22023: a queue name must not be null', 'null');
SELECT is((SELECT count(*)::int FROM baton.queues), (SELECT count(*)::int FROM names), 'none of them was made');

CREATE TABLE calls (call text);
INSERT INTO calls VALUES
    ('SELECT FROM baton.enqueue(%L, ''1'')'), ('SELECT FROM baton.enqueue_bytes(%L, ''1'')'), ('SELECT FROM baton.enqueue_batch(%L, ''{1}'')'),
    ('SELECT FROM baton.enqueue_batch_bytes(%L, ''{1}'')'), ('SELECT FROM baton.claim(%L)'), ('SELECT FROM baton.take(%L)'),
    ('SELECT FROM baton.settle_and_claim(%L, NULL)'), ('SELECT baton.why_empty(%L)'), ('SELECT baton.channel(%L)'), ('SELECT FROM baton.explain_message(%L, 1)'),
    ('SELECT FROM baton.check(%L)'), ('SELECT baton.backlog(%L)'), ('SELECT FROM baton.describe_queue(%L)'), ('SELECT FROM baton.quarantined(%L)'),
    ('SELECT FROM baton.evidence(%L, 1)'), ('SELECT baton.pause(%L)'), ('SELECT baton.resume(%L)'), ('SELECT baton.fence(%L)'),
    ('SELECT baton.activate(%L)'), ('SELECT baton.alter_queue(%L)'), ('SELECT baton.drop_queue(%L)');
SELECT is_empty($$SELECT call, e FROM calls, LATERAL head_of(format(call, repeat('x', 64))) e WHERE e <> '22023: a queue name must have 1 to 63 bytes'$$,
                'no verb truncates 64 bytes to the 63 that are there');
SELECT is_empty($$SELECT call, e FROM calls, LATERAL head_of(format(call, '')) e WHERE e <> '22023: a queue name must have 1 to 63 bytes'$$, 'no verb takes an empty name');
SELECT is_empty($$SELECT call, e FROM calls, LATERAL head_of(format(call, NULL)) e WHERE e <> '22023: a queue name must not be null'$$, 'nor a null');
SELECT is_empty($$SELECT call, e FROM calls, LATERAL head_of(format(call, 'no such')) e WHERE e <> '42704: queue "no such" does not exist'$$, 'nor one that is not there');
SELECT is_empty($$SELECT call, e FROM calls, LATERAL head_of(format(call, repeat('x', 62))) e WHERE e NOT LIKE '42704: queue "xx%'$$, 'nor a prefix');
SELECT is(head_of(format('SELECT baton.adopt(%L)', repeat('x', 64))), '22023: a queue name must have 1 to 63 bytes', 'adopt');
SELECT is(head_of($$SELECT baton.adopt('no such')$$), '42704: queue "no such" does not exist', 'adopt of none');

SELECT is(error_of($$SELECT FROM baton.claim('no such')$$), E'42704: queue "no such" does not exist\nHINT: SELECT name FROM baton.queues lists the queues you may see.', 'a hint where to look');

-- A prepared statement per path: names as parameters
PREPARE e (text) AS SELECT state FROM baton.enqueue($1, '1');
PREPARE c (text) AS SELECT count(*)::int FROM baton.claim($1);
SELECT results_eq($$EXECUTE e ('a.b')$$, $$VALUES ('ready')$$, 'as a parameter: enqueue');
SELECT results_eq($$EXECUTE c ('a.b')$$, 'VALUES (1)', 'as a parameter: claim');

SELECT is((SELECT count(*)::int FROM names WHERE baton.drop_queue(name, discard => true)), (SELECT count(*)::int FROM names), 'all names are dropped');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace IN ('baton_queue'::regnamespace, 'baton_data'::regnamespace) AND relname ~ '^q\d'
                  UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'baton_queue'::regnamespace$$, 'and nothing of them is left');
SELECT baton.create_queue('one more') \gset
SELECT sound('one more');

SELECT * FROM finish();
