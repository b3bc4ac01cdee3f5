-- alter_queue and drop_queue: what changes, what is refused, what becomes of tokens and names.
\ir prelude.psql

SELECT plan(70);

CREATE FUNCTION option(queue text, option text) RETURNS text LANGUAGE sql AS
$$ SELECT d.value FROM baton.describe_queue(option.queue) d WHERE d.option = option.option $$;

SELECT baton.create_queue('q') \gset
CREATE TABLE before AS SELECT * FROM baton.describe_queue('q');

SELECT lives_ok($$SELECT baton.alter_queue('q')$$, 'nothing to change');
SELECT set_eq($$SELECT option, value FROM baton.describe_queue('q')$$, 'SELECT option, value FROM before', 'changes nothing');
SELECT lives_ok($$SELECT baton.alter_queue('q', lease => '1 min', min_lease => '1 s', max_lease => '10 min', max_lifetime => '1 hour', max_attempts => 5,
    claim_ceiling => 50, backoff => '2 s', max_backoff => '1 min', max_delay => '1 day', max_payload_bytes => 1000, max_headers_bytes => 100,
    durability => 'async', claim_flush => false, segment_bytes => 1048576, retention => '1 day', replay_window => '2 hours', expired => 'keep',
    expiry_ends_lease => true, start_within => '10 s', notify => true)$$, 'all options at once');
SELECT results_eq($$SELECT option, value FROM baton.describe_queue('q') WHERE option NOT IN ('id', 'paused', 'at_home', 'segments', 'replicable', 'held', 'rotation_held_until')$$, $$VALUES
    ('lease', '00:01:00'), ('min_lease', '00:00:01'), ('max_lease', '00:10:00'), ('max_lifetime', '01:00:00'), ('max_attempts', '5'),
    ('claim_ceiling', '50'), ('backoff', '00:00:02'), ('max_backoff', '00:01:00'), ('max_delay', '1 day'), ('max_payload_bytes', '1000'),
    ('max_headers_bytes', '100'), ('durability', 'async'), ('claim_flush', 'false'), ('segment_bytes', '1048576'), ('retention', '1 day'), ('replay_window', '02:00:00'),
    ('expired', 'keep'), ('expiry_ends_lease', 'true'), ('start_within', '00:00:10'), ('notify', 'true')$$, 'all are changed');

-- what is changed holds at once, in this session and for messages that are there already
SELECT is(head_of(format('SELECT FROM baton.enqueue(%L, to_jsonb(repeat(%L, 2000)))', 'q', 'x')), '22023: payload is too large', 'a smaller payload limit holds');
SELECT put('q', 3) \gset
SELECT hold('a', 'q') \gset
SELECT ok((h('a')).lease_until BETWEEN clock_timestamp() + '5 s' AND clock_timestamp() + '10 s', 'a claim waits for its start no longer than start_within');
SELECT ok(baton.start(tok('a')) BETWEEN clock_timestamp() + '50 s' AND clock_timestamp() + '60 s', 'and takes the new lease');
SELECT is(head_of(format('SELECT baton.extend(%L, %L)', tok('a'), '11 min')), '22023: lease is out of range', 'extend takes the new limit');
SELECT lives_ok($$SELECT baton.alter_queue('q', max_lease => '20 min')$$, 'raised');
SELECT lives_ok(format('SELECT baton.extend(%L, %L)', tok('a'), '11 min'), 'and it is accepted');
SELECT lives_ok($$SELECT baton.alter_queue('q', max_attempts => 1)$$, 'one attempt from now on');
SELECT is((SELECT state FROM baton.release(tok('a'))), 'quarantined', 'a live claim fails under the new rule');
SELECT lives_ok($$SELECT baton.alter_queue('q', max_attempts => 5)$$, 'and back');

-- contradictions are found whichever side is changed
SELECT is(head_of($$SELECT baton.alter_queue('q', lease => '21 min')$$), '22023: lease must not be above max_lease', 'lease above the max_lease that is there');
SELECT is(head_of($$SELECT baton.alter_queue('q', max_lease => '2 s')$$), '22023: lease must not be above max_lease', 'max_lease below the lease that is there');
SELECT is(head_of($$SELECT baton.alter_queue('q', max_delay => '1 s')$$), '22023: max_backoff must not be above max_delay', 'max_delay below the backoff that is there');
SELECT is(head_of($$SELECT baton.alter_queue('q', max_attempts => 51)$$), '22023: max_attempts must not be above claim_ceiling', 'more attempts than claims');
SELECT is(head_of($$SELECT baton.alter_queue('q', lease => '1 month')$$), '22023: lease must be a length of time without months or years', 'a month');
SELECT is(head_of($$SELECT baton.alter_queue('q', segment_bytes => 1)$$), '22023: segment_bytes must be between 65536 and 1099511627776', 'a tiny segment');
SELECT is(head_of($$SELECT baton.alter_queue('q', durability => 'fsync')$$), '22023: durability must be local, replicated, async or volatile', 'no such class');
SELECT is(error_of($$SELECT baton.alter_queue('q', durability => 'volatile')$$), E'0A000: durability of queue "q" cannot be changed from async to volatile\nDETAIL: A volatile queue has unlogged segments from its creation on.\nHINT: Create another queue and let this one run empty.', 'never to volatile');
SELECT baton.create_queue('v', durability => 'volatile') \gset
SELECT is(head_of($$SELECT baton.alter_queue('v', durability => 'local')$$), '0A000: durability of queue "v" cannot be changed from volatile to local', 'nor from it');
SELECT lives_ok($$SELECT baton.alter_queue('v', durability => 'volatile', max_attempts => 3)$$, 'volatile stays volatile');
SELECT is(option('q', 'lease'), '00:01:00', 'what was refused changed nothing');
SELECT is(head_of($$SELECT baton.alter_queue('nope', lease => '1 s')$$), '42704: queue "nope" does not exist', 'no such queue');

-- transactional
BEGIN;
SELECT baton.alter_queue('q', lease => '2 min');
SELECT is(option('q', 'lease'), '00:02:00', 'seen by its own transaction');
SELECT hold('own', 'q') \gset
SELECT ok(baton.start(tok('own')) > clock_timestamp() + '90 s', 'and used by it');
ROLLBACK;
SELECT is(option('q', 'lease'), '00:01:00', 'and gone with it');
SELECT hold('b', 'q') \gset
SELECT ok((h('b')).lease_until < clock_timestamp() + '90 s', 'for claims too');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.alter_queue('q')$$), '25006: cannot execute alter_queue in a read-only transaction', 'read only');
ROLLBACK;
SELECT is(baton.ack(tok('b')), 'acked', 'a token outlives alter_queue');

-- drop: not while work is in it
SELECT is((SELECT count(*)::int FROM baton_queue.q), 1, 'one message is left, after its claim was rolled back, and one in quarantine');
SELECT is(error_of($$SELECT baton.drop_queue('q')$$), E'55000: queue "q" is not empty\nDETAIL: It holds 1 unsettled, 1 quarantined and 1 retained messages.\nHINT: SELECT baton.drop_queue(''q'', discard => true) drops them with the queue.', 'refused while work is in it');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 1, 'which is still there');
SELECT baton.create_queue('held queue') \gset
SELECT put('held queue', 2) \gset
SELECT hold('c', 'held queue') \gset
SELECT is(baton.ack(tok('c')), 'acked', 'one of two is settled');
SELECT hold('c', 'held queue') \gset
SELECT alike(error_of($$SELECT baton.drop_queue('held queue')$$), '%It holds 1 unsettled, 0 quarantined and 0 retained messages.%', 'a claimed message is work');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('c')])), 'handed_back', 'handed back');
SELECT alike(error_of($$SELECT baton.drop_queue('held queue')$$), '%It holds 1 unsettled, 0 quarantined and 0 retained messages.%', 'a ready message is work');
SELECT hold('c', 'held queue') \gset
BEGIN;
SELECT is(baton.ack(tok('c')), 'acked', 'settled by this transaction');
SELECT is(head_of($$SELECT baton.drop_queue('held queue')$$), '55000: queue "held queue" is not empty', 'which is not final yet');
SELECT is(error_of($$SELECT baton.drop_queue('held queue', discard => true)$$), 'no error', 'but may be discarded');
ROLLBACK;
SELECT is(state_of('held queue', (h('c')).id), 'claimed', 'rolled back: the queue and the claim are there');
SELECT is(baton.ack(tok('c')), 'acked', 'and the token works');
SELECT is(baton.drop_queue('held queue'), true, 'empty: dropped');
SELECT is(baton.drop_queue('q', discard => true), true, 'discard: dropped with its work');
SELECT is((SELECT count(*)::int FROM baton_data.quarantined) + (SELECT count(*)::int FROM baton_data.evidence), 0, 'its quarantine and evidence are gone too');
SELECT is(error_of($$SELECT baton.drop_queue('q')$$), '42704: queue "q" does not exist', 'once more');
SELECT is(baton.drop_queue('q', if_exists => true), false, 'if_exists: false, it was not there');
SELECT is(head_of($$SELECT FROM baton.claim('q')$$), '42704: queue "q" does not exist', 'nothing to claim from');
SELECT is(head_of($$SELECT * FROM baton_queue.q$$), '42P01: relation "baton_queue.q" does not exist', 'no view');

-- the same name again is another queue
SELECT baton.create_queue('again') \gset
SELECT put('again') \gset
SELECT hold('old', 'again') \gset
SELECT option('again', 'id') AS old_id \gset
SELECT is(baton.drop_queue('again', discard => true), true, 'dropped with a live claim');
SELECT baton.create_queue('again') \gset
SELECT isnt(option('again', 'id'), :'old_id', 'made again: another id');
SELECT put('again') \gset
SELECT hold('new', 'again') \gset
SELECT is((h('new')).id, (h('old')).id, 'the same message id');
SELECT is((h('new')).generation, (h('old')).generation, 'and generation');
SELECT is(head_of(format('SELECT baton.ack(%L)', tok('old'))), 'QB008: ack refused: the place this token points to has been reclaimed, rebuilt or fenced', 'the old token is of another queue');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('old')], '{ack}')), 'stale_epoch', 'settle says so');
SELECT is(state_of('again', (h('new')).id), 'claimed', 'the new claim is untouched');
SELECT cmp_ok((h('new')).fence, '>', (h('old')).fence, 'fence numbers go on growing across it');
SELECT is(baton.ack(tok('new')), 'acked', 'and the new token works');

-- something of the application's that depends on the view
SELECT baton.create_queue('used') \gset
CREATE VIEW uses AS SELECT id FROM baton_queue.used;
SELECT is(head_of($$SELECT baton.drop_queue('used')$$), '2BP01: cannot drop view baton_queue.used because other objects depend on it', 'a view that others depend on is not dropped from under them');
SELECT is((SELECT state FROM baton.enqueue('used', '1')), 'ready', 'and the queue works on');
DROP VIEW uses;

-- a view that was dropped by hand
SELECT baton.create_queue('lost') \gset
DROP VIEW baton_queue.lost;
SELECT is(head_of($$SELECT FROM baton.enqueue('lost', '1')$$), '42704: queue "lost" does not exist', 'without its view nobody can use it');
SELECT is(error_of($$SELECT baton.create_queue('lost')$$), E'42710: queue "lost" already exists\nDETAIL: Its view has been dropped or renamed.\nHINT: SELECT baton.drop_queue(''lost'') removes what is left of it.', 'create says what to do');
SELECT is(baton.drop_queue('lost'), true, 'drop_queue clears up');
SELECT is(baton.create_queue('lost'), true, 'and the name is free');

SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT baton.drop_queue(name, discard => true) FROM baton.queues \g /dev/null
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace AND relname ~ '^q\d'$$, 'nothing is left');

SELECT * FROM finish();
