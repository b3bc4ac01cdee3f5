-- pause and resume: nothing is handed out; everything else goes on.
\ir prelude.psql

SELECT plan(35);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT baton.create_queue('other') \gset
SELECT put('q', 5) AS first \gset
SELECT put('other', 1) AS other \gset
SELECT hold('a' || i, 'q') FROM generate_series(1, 4) i \g /dev/null

SELECT lives_ok($$SELECT baton.pause('q')$$, 'paused');
SELECT is((SELECT state FROM baton.queues WHERE name = 'q'), 'paused', 'shown');
SELECT is((SELECT count(*)::int FROM baton.claim('q')), 0, 'no claim');
SELECT is((SELECT count(*)::int FROM baton.take('q')), 0, 'no take');
SELECT is(baton.why_empty('q'), 'paused', 'why_empty');
SELECT is((SELECT string_agg(obstacle, ',') FROM baton.explain_message('q', :first + 4)), 'paused', 'explain_message');
SELECT alike((SELECT detail FROM baton.health WHERE item = 'queues'), '%paused: q%', 'health');
CALL baton.wait('q', '0.1 s') \gset
SELECT is(:'reason'::text, 'paused', 'wait says so instead of timeout');
CALL baton.wait_any('{q}', '0.1 s') \gset
SELECT is(:{?queue}, FALSE, 'wait_any: null');
CALL baton.wait_any('{q,other}', '10 s') \gset
SELECT is(:'queue'::text, 'other', 'unless another queue has work');
SELECT is((SELECT count(*)::int FROM baton.take('other')), 1, 'which is not paused');

-- what is in flight can be settled, and all else goes on
SELECT is((SELECT state FROM baton.enqueue('q', '6')), 'ready', 'enqueue');
SELECT isnt(baton.start(tok('a1')), NULL, 'start');
SELECT isnt(baton.extend(tok('a1'), '1 min'), NULL, 'extend');
SELECT is(baton.ack(tok('a1')), 'acked', 'ack');
SELECT is((SELECT state FROM baton.release(tok('a2'))), 'ready', 'release');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a3')])), 'handed_back', 'hand_back');
SELECT is(baton.quarantine(tok('a4')), 'quarantined', 'quarantine');
SELECT is(baton.backlog('q')::int, 4, 'the backlog counts on');
SELECT lives_ok($$SELECT baton.pause('q')$$, 'paused once more');

-- leases run on: what expires while it is paused is handed out afterwards
SELECT lives_ok($$SELECT baton.resume('q')$$, 'resumed');
SELECT is((SELECT state FROM baton.queues WHERE name = 'q'), 'active', 'shown');
SELECT is(baton.why_empty('q'), NULL, 'there is something');
SELECT hold('e', 'q') \g /dev/null
SELECT baton.pause('q') \g /dev/null
SET pg_baton.clock_offset = 40000;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('e')], '{ack}')), 'lease_expired', 'a lease ends while the queue is paused');
SELECT baton.resume('q') \g /dev/null
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 4, 'all are handed out afterwards');
RESET pg_baton.clock_offset;
SELECT lives_ok($$SELECT baton.resume('q')$$, 'resumed once more');

-- transactional
BEGIN;
SELECT baton.pause('other') \g /dev/null
SELECT is(baton.why_empty('other'), 'paused', 'paused for its own transaction');
ROLLBACK;
SELECT is(baton.why_empty('other'), 'empty', 'rolled back');

SELECT is(head_of('SELECT baton.pause(NULL)'), '22023: a queue name must not be null', 'null');
SELECT is(head_of($$SELECT baton.resume('none')$$), '42704: queue "none" does not exist', 'no such queue');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.pause('q')$$), '25006: cannot execute pause in a read-only transaction', 'read only');
SELECT is(head_of($$SELECT baton.resume('q')$$), '25006: cannot execute resume in a read-only transaction', 'read only');
ROLLBACK;

SELECT sound('q');
SELECT sound('other');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('other'), 'dropped');
SELECT * FROM finish();
