-- ack and ack_batch: final with the transaction, all or none, and what a second one is told.
\ir prelude.psql

SELECT plan(54);
SELECT baton.create_queue('q', lease => '30 s', backoff => '0') \gset
SELECT segment('q') AS seg \gset

SELECT put('q', 10) AS first \gset
SELECT hold('a', 'q') \g /dev/null
SELECT is(baton.ack(tok('a')), 'acked', 'acked');
SELECT is(state_of('q', :first), 'gone', 'gone from the view');
SELECT is((SELECT count(*)::int FROM :seg WHERE id = :first), 0, 'its row is deleted');
SELECT is((SELECT obstacle || ': ' || detail FROM baton.explain_message('q', :first)), 'settled: acknowledged', 'explain_message');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 100) WHERE id = :first), 0, 'never handed out again');

-- T7: the same token again
SELECT is(error_of($$SELECT baton.ack(tok('a'))$$), format(E'QB003: ack refused: the message was settled before\nDETAIL: message %s of queue "q": already_settled: the message was acknowledged.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', :first), 'ack again: settled before, and how');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'already_settled', 'settle says so');
SELECT is(head_of($$SELECT FROM baton.release(tok('a'))$$), 'QB003: release refused: the message was settled before', 'release after ack');
SELECT is(head_of($$SELECT baton.quarantine(tok('a'))$$), 'QB003: quarantine refused: the message was settled before', 'quarantine after ack');
SELECT is(head_of($$SELECT baton.extend(tok('a'))$$), 'QB003: extend refused: the message was settled before', 'extend after ack');
SELECT is(head_of($$SELECT baton.start(tok('a'))$$), 'QB003: start refused: the message was settled before', 'start after ack');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'already_settled', 'hand_back after ack');
SET pg_baton.clock_offset = 100000;
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), 'QB003: ack refused: the message was settled before', 'also long after the end of its lease');
RESET pg_baton.clock_offset;

-- a retried business transaction must not repeat its effects
CREATE TABLE ledger (n integer);
SELECT baton.fence('q') \g /dev/null
SELECT hold('a', 'q') \g /dev/null
SELECT is(error_of($$WITH e AS (INSERT INTO ledger VALUES (1)) SELECT baton.ack(tok('a'))$$), 'no error', 'effect and ack in one statement');
SELECT is(head_of($$WITH e AS (INSERT INTO ledger VALUES (1)) SELECT baton.ack(tok('a'))$$), 'QB003: ack refused: the message was settled before', 'once more');
SELECT is((SELECT count(*)::int FROM ledger), 1, 'one effect');

-- within one transaction
SELECT hold('a', 'q') \g /dev/null
BEGIN;
SELECT is(baton.ack(tok('a')), 'acked', 'acked');
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), 'QB003: ack refused: the message was settled before', 'and once more in the same transaction');
SELECT is(head_of($$SELECT FROM baton.release(tok('a'))$$), 'QB003: release refused: the message was settled before', 'or released');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'already_settled', 'or handed back');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE id = (h('a')).id), 0, 'to the transaction it is gone');
COMMIT;

-- ack_batch
SELECT is(baton.ack_batch('{}'), 0, 'no tokens');
SELECT hold('b' || i, 'q') FROM generate_series(1, 5) i \g /dev/null
SELECT is(baton.ack_batch(ARRAY[tok('b1')]), 1, 'one');
SELECT is(error_of($$SELECT baton.ack_batch(ARRAY[tok('b2'), tok('b1'), tok('b3')])$$), format(E'QB003: ack_batch refused: 1 of 3 tokens\nDETAIL: Token 2: message %s of queue "q": already_settled: the message was acknowledged.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', (h('b1')).id), 'one of three was settled before');
SELECT is(state_of('q', (h('b2')).id) || state_of('q', (h('b3')).id), 'claimedclaimed', 'none of the others is');
SELECT is(error_of($$SELECT baton.ack_batch(ARRAY['rubbish', tok('b2'), NULL, tok('b1')])$$), format(E'QB004: ack_batch refused: 3 of 4 tokens\nDETAIL: Token 1: invalid_token: not a token of this database.\nToken 3: invalid_token: not a token of this database.\nToken 4: message %s of queue "q": already_settled: the message was acknowledged.\nHINT: Pass the token exactly as baton.claim returned it, in the same database.', (h('b1')).id), 'all that are refused are listed; the first gives the SQLSTATE');
SELECT is(error_of($$SELECT baton.ack_batch(ARRAY[tok('b2'), tok('b2')])$$), format(E'QB003: ack_batch refused: 1 of 2 tokens\nDETAIL: Token 2: message %s of queue "q": already_settled: the message was acknowledged.\nHINT: If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.', (h('b2')).id), 'the same token twice');
SELECT is(state_of('q', (h('b2')).id), 'claimed', 'and not settled');
SELECT is(baton.ack_batch(ARRAY[tok('b3'), tok('b2')]), 2, 'two, in any order');
SELECT is((SELECT count(*)::int FROM :seg WHERE id IN ((h('b2')).id, (h('b3')).id)), 0, 'both are gone');
SELECT is(head_of('SELECT baton.ack_batch(NULL)'), '22023: tokens must not be null', 'null');
SELECT is(head_of('SELECT baton.ack(NULL)'), '22023: token must not be null', 'ack of null');
SELECT is(head_of($$SELECT baton.ack_batch(array_fill('x'::text, ARRAY[100001]))$$), '22023: tokens has too many elements', 'too many');
SELECT alike(error_of($$SELECT baton.ack_batch(array_fill('x'::text, ARRAY[150]))$$), E'QB004: ack_batch refused: 150 of 150 tokens\nDETAIL: Token 1: %\n50 more.\nHINT: %', 'a long list is cut, and says so');
SELECT is(head_of($$SELECT baton.ack_batch(ARRAY[[tok('b4')], [tok('b5')]])$$), '22023: tokens must have one dimension', 'two dimensions');
SELECT is(baton.ack_batch(ARRAY[tok('b4'), tok('b5')]), 2, 'the rest');

-- rolled back as a whole
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q', 3) AS first \gset
SELECT hold('b' || i, 'q') FROM generate_series(1, 3) i \g /dev/null
BEGIN;
SELECT is(baton.ack_batch(ARRAY[tok('b1'), tok('b2')]), 2, 'two');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE state = 'claimed'), 3, 'rolled back: all claimed');
BEGIN;
SELECT baton.ack(tok('b1')) \g /dev/null
SAVEPOINT s;
SELECT baton.ack(tok('b2')) \g /dev/null
ROLLBACK TO s;
SELECT baton.ack(tok('b3')) \g /dev/null
COMMIT;
SELECT results_eq($$SELECT id FROM baton_queue.q$$, format('VALUES (%s::bigint)', :first + 1), 'what was rolled back to a savepoint is not acknowledged');
SELECT is(baton.ack(tok('b2')), 'acked', 'and can be');

-- many tokens, over several pages and queues, in random order
SELECT baton.create_queue('p') \gset
SELECT put('q', 1000) AS first \gset
SELECT put('p', 1000) AS first \gset
CREATE TABLE many AS SELECT token FROM baton.claim('q', max_items => 1000) UNION ALL SELECT token FROM baton.claim('p', max_items => 1000);
SELECT is(baton.ack_batch(ARRAY(SELECT token FROM many ORDER BY md5(token))), 2000, '2000 tokens of two queues');
SELECT is(baton.backlog('q') + baton.backlog('p'), 0::float8, 'all are settled');
SELECT put('q', 1000) AS first \gset
TRUNCATE many;
INSERT INTO many SELECT token FROM baton.claim('q', max_items => 1000);
SELECT is(head_of('SELECT baton.ack_batch(ARRAY(SELECT token FROM many ORDER BY md5(token)) || ''x''::text)'), 'QB004: ack_batch refused: 1 of 1001 tokens', 'a thousand and one bad');
SELECT is(baton.backlog('q')::int, 1000, 'none is settled');
SELECT is(baton.ack_batch(ARRAY(SELECT token FROM many)), 1000, 'and all can be');

-- a row that plain SQL deleted while it was claimed
SELECT put('q') AS first \gset
SELECT hold('a', 'q') \g /dev/null
DELETE FROM :seg WHERE id = :first;
SELECT is(baton.ack(tok('a')), 'acked', 'deleted by plain SQL: the claim can be acknowledged');

-- where it may be called
SELECT put('q', 3) AS first \gset
SELECT hold('a', 'q') \g /dev/null
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.ack(tok('a'))$$), '25006: cannot execute ack in a read-only transaction', 'read only');
SELECT is(head_of($$SELECT baton.ack_batch(ARRAY[tok('a')])$$), '25006: cannot execute ack_batch in a read-only transaction', 'read only: batch');
ROLLBACK;
PREPARE a (text) AS SELECT baton.ack($1);
SELECT results_eq(format('EXECUTE a (%L)', tok('a')), $$VALUES ('acked')$$, 'prepared');
SELECT hold('a', 'q') \g /dev/null
SELECT hold('b', 'q') \g /dev/null
PREPARE ab (text[]) AS SELECT baton.ack_batch($1);
SELECT results_eq(format('EXECUTE ab (ARRAY[%L, %L])', tok('a'), tok('b')), 'VALUES (2)', 'prepared: batch');

SELECT is((SELECT acked FROM baton.queue_counters WHERE queue = 'p'), 1000, 'counted');
SELECT sound('q');
SELECT sound('p');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT ok(baton.drop_queue('q') AND baton.drop_queue('p'), 'dropped');
SELECT * FROM finish();
