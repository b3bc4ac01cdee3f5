-- create_queue: defaults, every option at its limits, refusals that leave nothing behind.
\ir prelude.psql

SELECT plan(124);

CREATE FUNCTION option(queue text, option text) RETURNS text LANGUAGE sql AS
$$ SELECT d.value FROM baton.describe_queue(option.queue) d WHERE d.option = option.option $$;

SELECT is(baton.create_queue('plain'), true, 'true: it was created');
SELECT results_eq($$SELECT option, value FROM baton.describe_queue('plain') WHERE option <> 'id'$$, $$VALUES
    ('lease', '00:00:30'), ('min_lease', '00:00:00.1'), ('max_lease', '12:00:00'), ('max_lifetime', '12:00:00'), ('max_attempts', '20'),
    ('claim_ceiling', '1000'), ('backoff', '00:00:01'), ('max_backoff', '01:00:00'), ('max_delay', '30 days'), ('max_payload_bytes', '1048576'),
    ('max_headers_bytes', '65536'), ('durability', 'local'), ('claim_flush', 'true'), ('segments', '3'), ('segment_bytes', '134217728'),
    ('replicable', 'false'), ('retention', '00:00:00'), ('replay_window', '00:00:00'), ('expired', 'drop'), ('expiry_ends_lease', 'false'),
    ('start_within', '00:00:00'), ('notify', 'false'), ('paused', 'false'), ('held', 'no'), ('rotation_held_until', 'no'), ('at_home', 'true')$$, 'defaults');
SELECT is_empty($$SELECT * FROM baton.describe_queue('plain') WHERE meaning IS NULL OR value IS NULL$$, 'every option has a value and a meaning');

SELECT is(error_of($$SELECT baton.create_queue('plain')$$), '42710: queue "plain" already exists', 'twice');
SELECT is(baton.create_queue('plain', if_not_exists => true), false, 'if_not_exists: false, it was there');
SELECT is(baton.create_queue('plain', if_not_exists => true, max_attempts => 7), false, 'if_not_exists with other options');
SELECT is(option('plain', 'max_attempts'), '20', 'does not change it');
SELECT is(error_of($$SELECT baton.create_queue('plain', if_not_exists => true, max_attempts => 0)$$),
          E'22023: max_attempts must be between 1 and 60000\nDETAIL: The value given is 0.', 'if_not_exists still checks its arguments');
SELECT is(baton.create_queue('null', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), true, 'null options are defaults');
SELECT results_eq($$SELECT option, value FROM baton.describe_queue('null') WHERE option <> 'id'$$, $$SELECT option, value FROM baton.describe_queue('plain') WHERE option <> 'id'$$, 'all of them');

-- one option at a time: lowest and highest that are accepted, and one step beyond
CREATE TABLE ranges (option text, low text, high text, too_low text, too_high text, others text);
INSERT INTO ranges VALUES
    ('lease', '0.1 s', '7 days', '0.099999 s', '7 days 0.000001 s', 'max_lease => ''7 days'', max_lifetime => ''30 days'''),
    ('min_lease', '0.1 s', '7 days', '0.099999 s', '7 days 0.000001 s', 'lease => ''7 days'', max_lease => ''7 days'', max_lifetime => ''7 days'''),
    ('max_lease', '0.1 s', '7 days', '0.099999 s', '7 days 0.000001 s', 'lease => ''0.1 s'', max_lifetime => ''7 days'''),
    ('max_lifetime', '0.1 s', '30 days', '0.099999 s', '30 days 0.000001 s', 'lease => ''0.1 s'', max_lease => ''0.1 s'''),
    ('max_attempts', '1', '60000', '0', '60001', 'claim_ceiling => 60000'),
    ('claim_ceiling', '1', '2000000000', '0', '2000000001', 'max_attempts => 1'),
    ('backoff', '0', '180 days', '-0.000001 s', '180 days 0.000001 s', 'max_backoff => ''180 days'', max_delay => ''180 days'''),
    ('max_backoff', '0', '180 days', '-0.000001 s', '180 days 0.000001 s', 'backoff => ''0'', max_delay => ''180 days'''),
    ('max_delay', '0', '180 days', '-0.000001 s', '180 days 0.000001 s', 'backoff => ''0'', max_backoff => ''0'''),
    ('max_payload_bytes', '0', '268435455', '-1', '268435456', 'max_headers_bytes => 0'),
    ('max_headers_bytes', '0', '1048576', '-1', '1048577', 'max_payload_bytes => 0'),
    ('retention', '0', '3660 days', '-0.000001 s', '3660 days 0.000001 s', 'max_lease => ''1 day'', max_lifetime => ''1 day'''),
    ('replay_window', '0', '3660 days', '-0.000001 s', '3660 days 0.000001 s', 'retention => ''3660 days'''),
    ('start_within', '0', '7 days', '-0.000001 s', '7 days 0.000001 s', 'max_lease => ''7 days'', max_lifetime => ''7 days'''),
    ('segments', '2', '64', '1', '65', 'max_attempts => 5'),
    ('segment_bytes', '65536', '1099511627776', '65535', '1099511627777', 'max_attempts => 5');
SELECT is(error_of(format('SELECT baton.create_queue(%L, %I => %L, %s)', option || ' low', option, low, others)), 'no error', option || ' at its lower limit') FROM ranges;
SELECT is(error_of(format('SELECT baton.create_queue(%L, %I => %L, %s)', option || ' high', option, high, others)), 'no error', option || ' at its upper limit') FROM ranges;
SELECT alike(error_of(format('SELECT baton.create_queue(%L, %I => %L, %s)', option || ' too low', option, too_low, others)),
             format('22023: %s must be between %%', option), option || ' below it') FROM ranges;
SELECT alike(error_of(format('SELECT baton.create_queue(%L, %I => %L, %s)', option || ' too high', option, too_high, others)),
             format('22023: %s must be between %%', option), option || ' above it') FROM ranges;
SELECT is(option('lease low', 'lease'), '00:00:00.1', 'kept as given: shortest lease');
SELECT is(option('max_lifetime high', 'max_lifetime'), '30 days', 'kept as given: longest lifetime');
SELECT is(option('segment_bytes high', 'segment_bytes'), '1099511627776', 'kept as given: largest segment');
SELECT is(error_of($$SELECT baton.create_queue('x', lease => '8 days')$$), E'22023: lease must be between 00:00:00.1 and 7 days\nDETAIL: The value given is 8 days.', 'says limits and value');
SELECT is(error_of($$SELECT baton.create_queue('x', segments => 65)$$), E'22023: segments must be between 2 and 64\nDETAIL: The value given is 65.', 'of numbers too');

-- what is kept is kept beyond any lease, whichever of the two is changed (T29)
SELECT is(error_of($$SELECT baton.create_queue('x', retention => '11 hours')$$),
          E'22023: max_lease must not be above retention\nDETAIL: max_lease is 12:00:00, retention is 11:00:00.', 'retention below the longest lease');
SELECT is(error_of($$SELECT baton.create_queue('kept', retention => '12 hours', replay_window => '1 hour', expired => 'keep', expiry_ends_lease => true, start_within => '1 min', notify => true)$$), 'no error', 'as long as it');
SELECT is(error_of($$SELECT baton.alter_queue('kept', max_lease => '13 hours', max_lifetime => '13 hours')$$),
          E'22023: max_lease must not be above retention\nDETAIL: max_lease is 13:00:00, retention is 12:00:00.', 'a lease beyond the retention that is there');
SELECT is(error_of($$SELECT baton.create_queue('x', retention => '12 hours', replay_window => '13 hours')$$),
          E'22023: replay_window must not be above retention\nDETAIL: replay_window is 13:00:00, retention is 12:00:00.', 'replay beyond what is kept');
SELECT is(error_of($$SELECT baton.create_queue('x', start_within => '13 hours')$$),
          E'22023: start_within must not be above max_lease\nDETAIL: start_within is 13:00:00, max_lease is 12:00:00.', 'a start later than any lease');
SELECT is(error_of($$SELECT baton.create_queue('x', expired => 'burn')$$), E'22023: expired must be drop or keep\nDETAIL: The value given is "burn".', 'a policy that is none');
SELECT results_eq($$SELECT option, value FROM baton.describe_queue('kept') WHERE option IN ('retention', 'replay_window', 'expired', 'expiry_ends_lease', 'start_within', 'notify')$$,
    $$VALUES ('retention', '12:00:00'), ('replay_window', '01:00:00'), ('expired', 'keep'), ('expiry_ends_lease', 'true'), ('start_within', '00:01:00'), ('notify', 'true')$$, 'all are kept');

-- lengths of time that are none
SELECT is(error_of($$SELECT baton.create_queue('x', lease => '1 month')$$), E'22023: lease must be a length of time without months or years\nDETAIL: The value given is 1 mon.', 'a month');
SELECT is(head_of($$SELECT baton.create_queue('x', max_delay => '1 year -365 days')$$), '22023: max_delay must be a length of time without months or years', 'a year less its days');
SELECT is(head_of($$SELECT baton.create_queue('x', lease => '2147483647 days')$$), '22023: lease must be between 00:00:00.1 and 7 days', 'no overflow: days');
SELECT is(head_of($$SELECT baton.create_queue('x', lease => '2147483647 days 2562047788:00:54')$$), '22023: lease must be between 00:00:00.1 and 7 days', 'no overflow: hours');
SELECT is(head_of($$SELECT baton.create_queue('x', lease => '-2147483648 days -2562047788:00:54')$$), '22023: lease must be between 00:00:00.1 and 7 days', 'no overflow: negative');
SELECT is(error_of($$SELECT baton.create_queue('sum', lease => '1 day -23 hours')$$), 'no error', 'parts are added up');

-- options that contradict each other
SELECT is(error_of($$SELECT baton.create_queue('x', lease => '1 s', min_lease => '2 s')$$), E'22023: min_lease must not be above lease\nDETAIL: min_lease is 00:00:02, lease is 00:00:01.', 'min_lease above lease');
SELECT is(error_of($$SELECT baton.create_queue('x', max_lease => '20 s')$$), E'22023: lease must not be above max_lease\nDETAIL: lease is 00:00:30, max_lease is 00:00:20.', 'the default lease above max_lease');
SELECT is(head_of($$SELECT baton.create_queue('x', max_lease => '13 hours')$$), '22023: max_lease must not be above max_lifetime', 'max_lease above max_lifetime');
SELECT is(head_of($$SELECT baton.create_queue('x', backoff => '2 hours')$$), '22023: backoff must not be above max_backoff', 'backoff above max_backoff');
SELECT is(head_of($$SELECT baton.create_queue('x', max_delay => '1 min')$$), '22023: max_backoff must not be above max_delay', 'max_backoff above max_delay');
SELECT is(error_of($$SELECT baton.create_queue('x', max_attempts => 1001)$$), E'22023: max_attempts must not be above claim_ceiling\nDETAIL: max_attempts is 1001, claim_ceiling is 1000.', 'more attempts than claims');
SELECT is(head_of($$SELECT baton.create_queue('x', durability => 'Local')$$), '22023: durability must be local, replicated, async or volatile', 'durability is one of four words');
SELECT is(head_of($$SELECT baton.create_queue('x', durability => '')$$), '22023: durability must be local, replicated, async or volatile', 'not empty');
SELECT is(error_of($$SELECT baton.create_queue('x', durability => 'volatile', replicable => true)$$), E'22023: a volatile queue cannot be replicable\nDETAIL: Unlogged tables cannot be published.', 'volatile and replicable');
SELECT is((SELECT count(*)::int FROM baton.queues WHERE name IN ('x') OR name LIKE '% too %'), 0, 'nothing that was refused is there');
SELECT is_empty($$SELECT FROM baton_internal.queue q WHERE NOT EXISTS (SELECT FROM pg_class WHERE relname = q.name::name AND relnamespace = 'baton_queue'::regnamespace)$$, 'nor half of it');

-- what else there is in its place
CREATE VIEW baton_queue.planted AS SELECT 1 AS one;
SELECT is(error_of($$SELECT baton.create_queue('planted')$$), E'42710: cannot create queue "planted"\nDETAIL: baton_queue.planted is in its place and is not a queue.', 'a foreign view in its place');
SELECT is(head_of($$SELECT FROM baton.enqueue('planted', '1')$$), '42704: queue "planted" does not exist', 'which is no queue');
DROP VIEW baton_queue.planted;

-- durability classes and the relations they make
SELECT lives_ok($$SELECT baton.create_queue('d ' || d, durability => d) FROM unnest('{local,replicated,async,volatile}'::text[]) d$$, 'all four classes');
SELECT is((SELECT string_agg(DISTINCT c.relpersistence::text, '') FROM pg_class c WHERE c.relname ~ format('^q%s_\d', option('d volatile', 'id'))), 'u', 'volatile: segments and maps are unlogged');
SELECT is((SELECT string_agg(DISTINCT c.relpersistence::text, '') FROM pg_class c WHERE c.relname ~ format('^q%s_\d', option('d local', 'id'))), 'p', 'local: they are not');

-- replicable: a primary key
SELECT lives_ok($$SELECT baton.create_queue('repl', replicable => true, segments => 2)$$, 'replicable');
SELECT is((SELECT count(*)::int FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid WHERE c.contype = 'p' AND r.relname ~ format('^q%s_\d', option('repl', 'id'))), 2, 'each segment has a primary key');
SELECT is((SELECT count(*)::int FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid WHERE c.contype = 'p' AND r.relname ~ format('^q%s_\d', option('plain', 'id'))), 0, 'others have none');
SELECT put('repl', 3) \gset
SELECT is((SELECT count(*)::int FROM baton.take('repl', 10)), 3, 'and it works');

-- segments as promised: typed, full pages, no autovacuum
SELECT is((SELECT count(*)::int FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace AND relname ~ format('^q%s_\d+$', option('segments high', 'id'))), 64, '64 segments');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace AND relkind = 'r' AND relname ~ '^q\d'
                  AND (reloftype <> 'baton.message'::regtype OR NOT reloptions @> '{autovacuum_enabled=false,vacuum_truncate=false}')$$, 'every segment: of type baton.message, autovacuum and truncation by vacuum off');
SELECT is_empty($$SELECT s.relname FROM pg_class s WHERE s.relnamespace = 'baton_data'::regnamespace AND s.relkind = 'r' AND s.relname ~ '^q\d'
                  AND 1 <> (SELECT count(*) FROM pg_index i JOIN pg_class m ON m.oid = i.indexrelid JOIN pg_am a ON a.oid = m.relam WHERE i.indrelid = s.oid AND a.amname = 'baton_lease')$$, 'every segment has one lease map');
SELECT is_empty($$SELECT objid::regclass FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_class'::regclass AND objid::regclass::text ~ 'q\d+_'$$, 'no segment is a member of the extension');

-- in a transaction: with it or not at all
BEGIN;
SELECT baton.create_queue('undone') \gset
SELECT FROM baton.enqueue('undone', '1');
ROLLBACK;
SELECT is(head_of($$SELECT FROM baton.enqueue('undone', '1')$$), '42704: queue "undone" does not exist', 'rolled back: it never was');
BEGIN;
SELECT baton.create_queue('done') \gset
SELECT FROM baton.enqueue('done', '1');
COMMIT;
SELECT is((SELECT count(*)::int FROM baton.take('done')), 1, 'created, enqueued and committed together');
BEGIN;
SAVEPOINT s;
SELECT baton.create_queue('half') \gset
ROLLBACK TO s;
SELECT is(baton.create_queue('half'), true, 'rolled back to a savepoint and made again');
COMMIT;
SELECT ok(baton.create_queue('undone'), 'the name of a rolled back queue is free');

BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.create_queue('ro')$$), '25006: cannot execute create_queue in a read-only transaction', 'read only');
ROLLBACK;

SELECT is_empty($$SELECT q.name, c.* FROM baton.queues q, LATERAL baton.check(q.name) c$$, 'all are sound');
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name)$$, 'all are dropped');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace AND relname ~ '^q\d'$$, 'nothing is left of them');

SELECT * FROM finish();
