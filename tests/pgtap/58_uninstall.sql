-- uninstall: what it reports, what it refuses, and that it leaves nothing behind. The last call drops the extension itself.
\ir prelude.psql

SELECT plan(36);

-- what the tests need and what would be in the way of dropping the extension
CREATE FUNCTION report(dry_run boolean = true, discard boolean = false) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT concat_ws(' | ', u.action, u.kind, u.object, coalesce(u.unsettled::text, '-'), coalesce(u.quarantined::text, '-'))
                 FROM baton.uninstall(dry_run, discard) u;
END $$;
DROP FUNCTION h(text), tok(text), hold(text, text, interval, text);
DROP TABLE held;

CREATE ROLE baton_shop;
CREATE ROLE baton_other;
GRANT CREATE ON SCHEMA baton_queue TO baton_shop;
SET ROLE baton_shop;
SELECT baton.create_queue('shop''s own') \gset
GRANT INSERT ON baton_queue."shop's own" TO baton_other;
RESET ROLE;
SELECT baton.create_queue('q') \gset
SELECT baton.create_queue('empty', replicable => true) \gset
SELECT baton.create_queue('fast', durability => 'volatile') \gset
SELECT put('q', 10) \gset
SELECT count(*) FROM baton.enqueue('q', '1', delay => '1 hour') \gset
SELECT count(baton.quarantine(token, 'bad')) FROM baton.claim('q', 'w', 2) \gset
SELECT token AS token FROM baton.claim('q', 'w', 1) \gset

-- ---- a look
SELECT set_eq('SELECT report()', $$VALUES
    ('drop | queue | shop''s own | 0 | 0'), ('drop | queue | q | 9 | 2'), ('drop | queue | empty | 0 | 0'), ('drop | queue | fast | 0 | 0'),
    ('drop | extension | pg_baton | - | -'), ('stays | library | pg_baton | - | -')$$, 'all queues of all owners, with what is in them');
SELECT is((SELECT count(*) FROM baton_queue.q), 9, 'a look changes nothing');
SELECT set_eq('SELECT report(NULL, true)', 'SELECT report()', 'NULL is a look');
SELECT is((SELECT detail FROM baton.uninstall() WHERE object = 'shop''s own'), 'owner baton_shop, ' || pg_size_pretty(56 * 1024::bigint), 'owner and size');
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM report()), 6, 'a look in a read-only transaction');
SELECT is(head_of('SELECT report(false, true)'), '25006: cannot execute uninstall in a read-only transaction', 'and not more');
ROLLBACK;
SELECT is(error_as('baton_shop', 'SELECT * FROM baton.uninstall()'), '42501: must be owner of extension "pg_baton" to uninstall it', 'the owner of a queue is not asked');
SELECT is(error_as('baton_shop', 'SELECT * FROM baton.uninstall(false, true)'), '42501: must be owner of extension "pg_baton" to uninstall it', 'in neither form');

-- ---- in the way
CREATE TABLE business (id integer, proof baton.token);
CREATE TRIGGER business_outbox AFTER INSERT ON business REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q');
CREATE VIEW stats AS SELECT queue, ready FROM baton.queue_stats;
CREATE VIEW look AS SELECT id, state FROM baton_queue.q;
CREATE TABLE baton_queue.intruder ();
CREATE FUNCTION total() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT sum(unsettled) FROM baton.segments; END;
SELECT set_eq($$SELECT kind, object, detail FROM baton.uninstall() WHERE action = 'in the way'$$, $$VALUES
    ('table', 'public.business', 'needs type baton.token'), ('trigger', 'business_outbox on public.business', 'needs function baton.outbox()'),
    ('view', 'public.stats', 'needs view baton.queue_stats'), ('view', 'public.look', 'needs view baton_queue.q'),
    ('table', 'baton_queue.intruder', 'needs schema baton_queue'), ('function', 'public.total()', 'needs view baton.segments')$$, 'what uses pg_baton is listed');
SELECT is(error_of('SELECT report(false, true)'), E'2BP01: cannot uninstall pg_baton because other objects need it\nDETAIL: In the way: function public.total(), table baton_queue.intruder, table public.business, trigger business_outbox on public.business, view public.look, view public.stats.\nHINT: Drop them first; SELECT * FROM baton.uninstall() lists them and what they need.', 'and stays, whatever is asked for');
DROP VIEW stats, look;
DROP FUNCTION total();
DROP TABLE business, baton_queue.intruder;

-- ---- full
SELECT is(error_of('SELECT report(false)'), E'55000: cannot uninstall pg_baton while messages are in it\nDETAIL: Not empty: q (9 unsettled, 2 quarantined, 0 retained).\nHINT: Work them off, or give them up with SELECT * FROM baton.uninstall(dry_run => false, discard => true).', 'unsettled work is not dropped by the way');
SELECT baton.ack(:'token') \gset
SET pg_baton.clock_offset = '2h';
CALL baton.maintain('q');
SELECT count(*) FROM baton.take('q', 100) \gset
RESET pg_baton.clock_offset;
SELECT is(split_part(error_of('SELECT report(false)'), E'\n', 2), 'DETAIL: Not empty: q (0 unsettled, 2 quarantined, 0 retained).', 'nor quarantined work');
BEGIN;
SELECT is((SELECT count(*) FROM report(false, true) r WHERE r ~ '^dropped'), 5, 'unless it is given up');
SELECT is((SELECT count(*) FROM pg_namespace WHERE nspname ~ '^baton'), 0, 'gone');
ROLLBACK;
SELECT is((SELECT report FROM report() WHERE report ~ ' q '), 'drop | queue | q | 0 | 2', 'a rollback brings it all back');
SELECT put('empty') \gset
SELECT is(state_of('empty', (SELECT min(id) FROM baton_queue.empty)), 'ready', 'and it works');

-- ---- damaged: unknown is not empty
SELECT segment('fast', 1) AS damaged \gset
ALTER TABLE :damaged RENAME TO elsewhere;
SELECT is((SELECT report FROM report() WHERE report ~ 'fast'), 'drop | queue | fast | - | 0', 'a queue without one of its segments cannot be counted');
SELECT is((SELECT report FROM report() WHERE report ~ 'elsewhere'), 'drop | segment | baton_data.elsewhere | - | 0', 'nor is a segment of no queue forgotten');
SELECT matches(split_part(error_of('SELECT report(false)'), E'\n', 2), 'fast \(unknown unsettled, 0 quarantined, 0 retained\)', 'which takes discard');
DELETE FROM baton_internal.queue WHERE name = 'empty';
SELECT is((SELECT string_agg(report, E'\n') FROM report() WHERE report ~ 'q3_'), E'drop | segment | baton_data.q3_0 | - | 0\ndrop | segment | baton_data.q3_1 | - | 0\ndrop | segment | baton_data.q3_2 | - | 0\ndrop | sequence | baton_data.q3_id | 0 | 0', 'what a lost definition leaves is listed');
DROP VIEW baton_queue.empty;

-- ---- done
ALTER DATABASE :DBNAME SET pg_baton.settle_timeout = '1s';
SELECT is((SELECT count(*) FROM report() r WHERE r = 'stays | setting | pg_baton.settle_timeout | - | -'), 1, 'settings are named');
SELECT is((SELECT detail FROM baton.uninstall() WHERE kind = 'setting'), format('ALTER DATABASE %I RESET pg_baton.settle_timeout', current_database()), 'with what takes them back');
PREPARE again AS SELECT count(*) FROM baton.uninstall();
EXECUTE again \gset
SELECT is((SELECT string_agg(r, E'\n') FROM report(false, true) r), $$dropped | queue | fast | - | 0
dropped | queue | q | 0 | 2
dropped | queue | shop's own | 0 | 0
dropped | segment | baton_data.elsewhere | - | 0
dropped | segment | baton_data.q3_0 | - | 0
dropped | segment | baton_data.q3_1 | - | 0
dropped | segment | baton_data.q3_2 | - | 0
dropped | sequence | baton_data.q3_id | 0 | 0
dropped | extension | pg_baton | - | -
stays | setting | pg_baton.settle_timeout | - | -
stays | library | pg_baton | - | -$$, 'uninstalled by a function that is gone when it returns');
SELECT is((SELECT count(*) FROM pg_extension WHERE extname = 'pg_baton'), 0, 'no extension');
SELECT is((SELECT count(*) FROM pg_namespace WHERE nspname ~ '^baton'), 0, 'no schema');
SELECT is((SELECT count(*) FROM pg_am WHERE amname = 'baton_lease'), 0, 'no access method');
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace)), 0, 'no relation');
SELECT is((SELECT count(*) FROM pg_class WHERE relname ~ '^q\d+_'), 0, 'nowhere');
SELECT is((SELECT count(*) FROM pg_proc WHERE probin ~ 'pg_baton'), 0, 'no function');
SELECT is((SELECT count(*) FROM pg_init_privs WHERE classoid = 'pg_namespace'::regclass AND objoid NOT IN (SELECT oid FROM pg_namespace)), 0, 'no privileges');
SELECT lives_ok('DROP ROLE baton_shop, baton_other', 'roles are free');
SELECT is(head_of('EXECUTE again'), '3F000: schema "baton" does not exist', 'a prepared call');

-- ---- and again
SELECT lives_ok('CREATE EXTENSION pg_baton', 'a reinstall');
SELECT baton.create_queue('q') \gset
SELECT put('q', 3) \gset
SELECT is(head_of(format('SELECT baton.ack(%L)', :'token')), 'QB004: ack refused: not a token of this database', 'tokens of before are refused');
SELECT is((SELECT count(*) FROM baton.take('q', 10)), 3, 'and it works');
SELECT sound('q');
SELECT * FROM finish();
