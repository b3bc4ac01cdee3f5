-- enqueue_batch and enqueue_batch_bytes: one value for each or one for all; one bad row and none is enqueued.
\ir prelude.psql

SELECT plan(59);
SELECT baton.create_queue('q', max_payload_bytes => 100) \gset
CREATE FUNCTION depth() RETURNS integer LANGUAGE sql AS $$ SELECT baton.backlog('q')::int $$;

SELECT results_eq($$SELECT ord, state FROM baton.enqueue_batch('q', '{1,2,3}')$$, $$VALUES (1, 'ready'), (2, 'ready'), (3, 'ready')$$, 'one row for each payload, in order');
SELECT results_eq($$SELECT payload::int FROM baton_queue.q ORDER BY id$$, 'VALUES (1), (2), (3)', 'ids in that order');
SELECT results_eq($$SELECT payload::int FROM baton.take('q', 10)$$, 'VALUES (1), (2), (3)', 'handed out in that order');

-- one for each
SELECT lives_ok($$SELECT FROM baton.enqueue_batch('q', '{1,2,NULL}', '{m1,m2,m3}', '{k1,NULL,k3}', '{c1,c2,c3}', '{5,NULL,5}', '{"{}",NULL,"{\"a\":1}"}', '{1 h,NULL,0}',
    ARRAY[NULL, now() + '2 h'::interval, NULL], ARRAY[now() + '3 h'::interval, NULL, NULL], '{NULL,NULL,ref}')$$, 'arrays of one element for each');
SELECT results_eq($$SELECT message_id, routing_key, message_class, priority, headers, state, expires_at IS NOT NULL, payload_ref, payload FROM baton_queue.q ORDER BY id$$, $$VALUES
    ('m1', 'k1', 'c1', 5, '{}'::jsonb, 'scheduled', true, NULL, '1'::jsonb),
    ('m2', NULL, 'c2', 5, NULL, 'scheduled', false, NULL, '2'),
    ('m3', 'k3', 'c3', 5, '{"a": 1}', 'ready', false, 'ref', NULL)$$, 'each has its own');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE not_before > clock_timestamp() + '90 min'), 1, 'not_before of one, delay of another');

-- one for all
SELECT lives_ok($$SELECT FROM baton.enqueue_batch('q', '{10,11,12}', '{all}', '{key}', '{cls}', '{5}', '{"{}"}', '{0}', NULL, ARRAY[now() + '1 day'::interval], '{r}')$$, 'arrays of one element');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE message_id = 'all' AND routing_key = 'key' AND message_class = 'cls' AND headers = '{}' AND payload_ref = 'r' AND expires_at IS NOT NULL), 3, 'hold for all');
SELECT is((SELECT string_agg(state, ',') FROM baton.enqueue_batch('q', '{1,2}', delays => '{1 h}')), 'scheduled,scheduled', 'one delay for all');
SELECT is((SELECT string_agg(state, ',') FROM baton.enqueue_batch('q', '{1,2}', delays => '{1 h,0}')), 'scheduled,ready', 'a delay for each');
SELECT is((SELECT string_agg(state, ',') FROM baton.enqueue_batch('q', '{1,2}', '{}'::text[] || NULL::text)), 'ready,ready', 'one null for all');
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('q', '{1}', '{one}')), 1, 'a batch of one');

-- none at all
SELECT is_empty($$SELECT * FROM baton.enqueue_batch('q', '{}')$$, 'no payloads, no messages');
SELECT is_empty($$SELECT * FROM baton.enqueue_batch('q', '{}', '{}', '{}')$$, 'with empty arrays');
SELECT is_empty($$SELECT * FROM baton.enqueue_batch('q', '{}', '{all}')$$, 'with one for all of none');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', NULL)$$), '22023: payloads must not be null', 'null is no array');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch_bytes('q', NULL)$$), '22023: payloads must not be null', 'nor for bytes');

-- unequal lengths
SELECT depth() AS depth \gset
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,3}', '{a,b}')$$), E'22023: message_ids has the wrong number of elements\nDETAIL: It has 2; expected is 3, or 1 that holds for all.', 'two of three');
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,3}', '{a,b,c,d}')$$), E'22023: message_ids has the wrong number of elements\nDETAIL: It has 4; expected is 3, or 1 that holds for all.', 'four of three');
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,3}', '{}')$$), E'22023: message_ids has the wrong number of elements\nDETAIL: It has 0; expected is 3, or 1 that holds for all.', 'none of three');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{}', '{a,b}')$$), '22023: message_ids has the wrong number of elements', 'two of none');
SELECT is(head_of(format('SELECT FROM baton.enqueue_batch(%L, %L, %I => %L)', 'q', '{1,2,3}', a.field, a.value)), format('22023: %s has the wrong number of elements', a.field), a.field)
    FROM (VALUES ('routing_keys', '{a,b}'), ('message_classes', '{a,b}'), ('priorities', '{5,5}'), ('headers', '{"{}","{}"}'), ('delays', '{1 s,1 s}'),
                 ('not_befores', '{2020-01-01,2020-01-01}'), ('expires_ats', '{2100-01-01,2100-01-01}'), ('payload_refs', '{a,b}')) a (field, value);
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '{{1,2},{3,4}}')$$), E'22023: payloads must have one dimension\nDETAIL: It has 2.', 'payloads of two dimensions');
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '{1,2}', '{{a},{b}}')$$), E'22023: message_ids must have one dimension\nDETAIL: It has 2.', 'ids of two dimensions');
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('q', '[5:6]={1,2}', '[-1:0]={a,b}')$$), 'no error', 'lower bounds do not matter');

-- one bad row, and which
CREATE FUNCTION context_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    context text;
BEGIN
    EXECUTE sql;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
    RETURN split_part(context, E'\n', 1);
END $$;
SELECT depth() AS depth \gset
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,3}', delays => '{0,-1 s,0}')$$), '22023: delay is out of range', 'one negative delay');
SELECT is(context_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,3}', delays => '{0,-1 s,0}')$$), 'message 2 of the batch', 'the second');
SELECT is(context_of($$SELECT FROM baton.enqueue_batch('q', '{1,2,NULL}')$$), 'message 3 of the batch', 'a null payload, the third');
SELECT is(context_of($$SELECT FROM baton.enqueue_batch_bytes('q', ARRAY[repeat('x', 101)::bytea, 'y'])$$), 'message 1 of the batch', 'too large, the first');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{1,2}', not_befores => '{2020-01-01,infinity}')$$), '22023: not_before must be finite', 'infinity');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{1,2}', priorities => '{5,11}')$$), '22023: priority is out of range', 'a priority');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{1,2}', delays => '{1 s}', not_befores => '{NULL,2020-01-01}')$$), '22023: delay and not_before are both given', 'both, for one of them');
SELECT is(head_of($q$SELECT FROM baton.enqueue_batch('q', ARRAY['1', '"\u0000"']::jsonb[])$q$), '22P05: unsupported Unicode escape sequence', 'NUL in one');
SELECT is(depth(), :depth, 'none of them enqueued any');

-- many: over several pages of the map, in order, and the limit
SELECT baton.create_queue('many') \gset
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('many', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 3000) i))), 3000, '3000 at once');
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('many', ARRAY(SELECT to_jsonb(i) FROM generate_series(3001, 3001 + 499) i))), 500, 'and 500');
SELECT results_eq($$SELECT payload::int FROM baton.take('many', 10000)$$, 'SELECT generate_series(1, 3500)', 'handed out in order');
SELECT is(error_of($$SELECT FROM baton.enqueue_batch('many', array_fill('1'::jsonb, ARRAY[100001]))$$), E'22023: payloads has too many elements\nDETAIL: It has 100001; the limit is 100000.', 'one more than the limit');
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('many', array_fill('1'::jsonb, ARRAY[100000]))), 100000, 'the limit');
SELECT is(baton.backlog('many')::int, 100000, 'all of them are there');
SELECT sound('many');

-- bytes
SELECT results_eq($$SELECT ord, state FROM baton.enqueue_batch_bytes('q', '{"\\x00","\\xff"}', routing_keys => '{bytes}')$$, $$VALUES (1, 'ready'), (2, 'ready')$$, 'bytes');
SELECT results_eq($$SELECT payload_bytes FROM baton_queue.q WHERE routing_key = 'bytes' ORDER BY id$$, $$VALUES ('\x00'::bytea), ('\xff')$$, 'as they were');

-- transactions
BEGIN;
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('q', ARRAY(SELECT '"gone"'::jsonb FROM generate_series(1, 1000)))), 1000, 'a thousand');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"gone"'), 0, 'rolled back: none');
BEGIN;
SELECT FROM baton.enqueue_batch('q', '{"1","2"}', message_classes => '{sub}');
SAVEPOINT a;
SELECT FROM baton.enqueue_batch('q', ARRAY(SELECT '3'::jsonb FROM generate_series(1, 300)), message_classes => '{sub}');
ROLLBACK TO a;
SAVEPOINT b;
SELECT FROM baton.enqueue_batch('q', '{"4","5"}', message_classes => '{sub}');
RELEASE b;
COMMIT;
SELECT results_eq($$SELECT payload::int FROM baton.claim('q', max_items => 10, classes => '{sub}')$$, 'VALUES (1), (2), (4), (5)', 'what was released with its savepoint is there, what was rolled back is not');
SELECT is(baton.why_empty('q'), NULL, 'others can be claimed');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.enqueue_batch('q', '{1}')$$), '25006: cannot execute enqueue_batch in a read-only transaction', 'read only');
SELECT is(head_of($$SELECT FROM baton.enqueue_batch_bytes('q', '{1}')$$), '25006: cannot execute enqueue_batch_bytes in a read-only transaction', 'read only, bytes');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM (SELECT baton.enqueue_batch('q', '{1,2}')) b), 2, 'in a select list');

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('many', discard => true), 'dropped');
SELECT * FROM finish();
