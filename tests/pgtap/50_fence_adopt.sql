-- fence, adopt and activate: ending every claim at once, a copy that is not meant to work, messages from replication.
\ir prelude.psql

SELECT plan(50);
SELECT baton.create_queue('q', max_attempts => 3) \gset
SELECT baton.create_queue('other') \gset
SELECT segment('q') AS seg \gset

-- fence
SELECT put('q', 6) AS first \gset
SELECT hold('a', 'q') \g /dev/null
SELECT hold('b', 'q') \g /dev/null
SELECT hold('r', 'q') \g /dev/null
SELECT state FROM baton.release(tok('r'), '1 h') \g /dev/null
SELECT put('other') AS other \gset
SELECT hold('o', 'other') \g /dev/null
SELECT is(baton.fence('q'), 2::bigint, 'two live claims are ended');
SELECT results_eq('SELECT state FROM baton_queue.q ORDER BY id', $$VALUES ('ready'), ('ready'), ('scheduled'), ('ready'), ('ready'), ('ready')$$, 'ready at once; what waits goes on waiting');
SELECT is((SELECT max(failures) FROM baton_queue.q WHERE id < :first + 2), 0, 'no failure is counted');
SELECT is(error_of($$SELECT baton.ack(tok('a'))$$), format(E'QB008: ack refused: the place this token points to has been reclaimed, rebuilt or fenced\nDETAIL: message %s of queue "q": stale_epoch: the queue was fenced or dropped, or the token''s place was reclaimed: settled, too long ago to say more.\nHINT: Roll back: this claim is over.', :first), 'their tokens are dead');
SELECT is((SELECT string_agg(DISTINCT outcome, ',') FROM baton.settle(ARRAY[tok('a'), tok('b'), tok('r')], '{ack}')), 'stale_epoch', 'all of them, also of what was settled');
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('a')])) || (SELECT outcome FROM baton.hand_back(ARRAY[tok('b')])), 'stale_epochstale_epoch', 'for extend and hand_back too');
SELECT is(baton.ack(tok('o')), 'acked', 'another queue''s tokens live');
SELECT is(hold('a2', 'q'), :first, 'the message is handed out again');
SELECT is((h('a2')).generation, 2::bigint, 'with the next generation');
SELECT cmp_ok((h('a2')).fence, '>', (h('a')).fence, 'and a greater fence number');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a')], '{ack}')), 'stale_epoch', 'the old token stays dead');
SELECT is(baton.ack(tok('a2')), 'acked', 'the new one works');
SELECT is(baton.fence('q'), 0::bigint, 'nothing is claimed: nothing is ended');
SELECT is(baton.fence('other'), 0::bigint, 'an empty queue');

-- expired claims are ended as well; their failure counts as it would have without the fence
SELECT hold('a', 'q', '1 s') \g /dev/null
SET pg_baton.clock_offset = 5000;
SELECT is(baton.fence('q'), 1::bigint, 'an expired claim is still a claim');
RESET pg_baton.clock_offset;
SELECT is(failures_of('q', (h('a')).id), 1, 'its failure counts');

-- a settlement that is open
SELECT current_database() AS gid \gset
SELECT hold('s', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('s')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT is(baton.fence('q'), 0::bigint, 'is left alone');
COMMIT PREPARED :'gid';
SELECT is(state_of('q', (h('s')).id), 'gone', 'and counts if it commits');
SELECT hold('s', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('s')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT baton.fence('q') \g /dev/null
ROLLBACK PREPARED :'gid';
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('s')], '{ack}')), 'stale_epoch', 'if it is rolled back, its token is fenced');
SELECT is(baton.fence('q'), 1::bigint, 'the next fence ends its claim');

-- it acts at once on claims
SELECT hold('t', 'q') \g /dev/null
BEGIN;
SELECT is(baton.fence('q'), 1::bigint, 'fenced in a transaction');
ROLLBACK;
SELECT isnt((SELECT outcome FROM baton.settle(ARRAY[tok('t')], '{ack}')), 'acked', 'that is rolled back: the claim is over all the same');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE state = 'claimed'), 0, 'nothing is claimed');
SELECT hold('t', 'q') \g /dev/null
SELECT is(baton.ack(tok('t')), 'acked', 'and new claims work');
SELECT is(head_of('SELECT baton.fence(NULL)'), '22023: a queue name must not be null', 'null');
SELECT is(head_of($$SELECT baton.fence('none')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.fence('q')$$), '25006: cannot execute fence in a read-only transaction', 'read only');
ROLLBACK;

-- a copy: made so by hand, as a restored dump has it
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q', 3) AS first \gset
SELECT hold('live', 'q') \g /dev/null
UPDATE baton_internal.queue SET home_system = 1 WHERE name = 'q';
SELECT baton.alter_queue('q') \g /dev/null
SELECT is((SELECT state FROM baton.queues WHERE name = 'q'), 'restored', 'a copy is shown as restored');
SELECT is((SELECT value FROM baton.describe_queue('q') WHERE option = 'at_home'), 'false', 'not at home');
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 0, 'hands out nothing');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 0, 'nor to take');
SELECT is(baton.why_empty('q'), 'restored', 'why_empty says why');
SELECT is((SELECT string_agg(obstacle, ',') FROM baton.explain_message('q', :first + 1)), 'restored', 'explain_message too');
SELECT alike((SELECT detail FROM baton.health WHERE item = 'queues'), '%restored, need baton.adopt: q%', 'and health');
SELECT is((SELECT state FROM baton.enqueue('q', '1')), 'ready', 'it takes messages in');
SELECT is(baton.adopt('q'), 1, 'adopted');
SELECT is((SELECT state FROM baton.queues WHERE name = 'q'), 'active', 'active');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 3, 'and hands out');
SELECT is(baton.adopt('q'), 0, 'it was at home already');
UPDATE baton_internal.queue SET home_database = 1;
SELECT baton.alter_queue(name) FROM baton_internal.queue \g /dev/null
SELECT is(baton.adopt(), 2, 'all at once');
SELECT is(baton.adopt(), 0, 'none is left');
SELECT is(head_of($$SELECT baton.adopt('none')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of('SELECT baton.adopt()'), '25006: cannot execute adopt in a read-only transaction', 'read only');
ROLLBACK;

-- activate: nothing came by replication here
SELECT put('q', 2) AS first \gset
SELECT is(baton.activate('q'), 0::bigint, 'nothing to activate');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10)), 2, 'what is there is handed out as before');
SELECT is(head_of($$SELECT baton.activate('none')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.activate('q')$$), '25006: cannot execute activate in a read-only transaction', 'read only');
ROLLBACK;

SELECT sound('q');
SELECT sound('other');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('other', discard => true), 'dropped');
SELECT * FROM finish();
