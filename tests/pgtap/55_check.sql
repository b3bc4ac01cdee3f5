-- check: says nothing of a sound queue, whatever goes on in it, and finds what is wrong.
\ir prelude.psql

SELECT plan(37);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT segment('q') AS seg, segment('q') || '_map' AS map, current_database() AS gid \gset
CREATE FUNCTION found() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(problem || coalesce(' ' || id, ''), ', ' ORDER BY problem, id) FROM baton.check('q') $$;

-- sound, through all states
SELECT is(found(), NULL, 'empty');
SELECT put('q', 300) AS first \gset
SELECT is(found(), NULL, 'ready');
SELECT FROM baton.enqueue('q', '1', delay => '1 h');
SELECT is(found(), NULL, 'scheduled');
SELECT hold('a' || i, 'q') FROM generate_series(1, 8) i \g /dev/null
SELECT is(found(), NULL, 'claimed');
SELECT baton.start(tok('a1')) \g /dev/null
SELECT baton.ack(tok('a1')) \g /dev/null
SELECT is(found(), NULL, 'acknowledged');
SELECT state FROM baton.release(tok('a2'), '0') \g /dev/null
SELECT state FROM baton.release(tok('a3'), '50 s') \g /dev/null
SELECT is(found(), NULL, 'released');
SELECT outcome FROM baton.hand_back(ARRAY[tok('a4')]) \g /dev/null
SELECT baton.quarantine(tok('a5')) \g /dev/null
SELECT is(found(), NULL, 'handed back, quarantined');
SET pg_baton.clock_offset = 100000;
SELECT is(found(), NULL, 'expired');
RESET pg_baton.clock_offset;
BEGIN;
SELECT put('q', 200) AS own \gset
SELECT baton.ack(tok('a6')) \g /dev/null
SELECT baton.quarantine(tok('a7')) \g /dev/null
SELECT count(*) FROM baton.take('q', 20) \g /dev/null
SELECT is(found(), NULL, 'in the middle of a transaction, by itself');
SAVEPOINT s;
SELECT put('q', 10) AS own \gset
SELECT count(*) FROM baton.take('q', 5) \g /dev/null
ROLLBACK TO s;
SELECT is(found(), NULL, 'after a savepoint was rolled back');
ROLLBACK;
SELECT is(found(), NULL, 'rolled back');
BEGIN;
SELECT baton.ack(tok('a6')) \g /dev/null
SELECT put('q', 5) AS prepared \gset
PREPARE TRANSACTION :'gid';
SELECT is(found(), NULL, 'beside an open transaction of somebody else');
COMMIT PREPARED :'gid';
SELECT is(found(), NULL, 'committed');
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
VACUUM :seg;
SELECT is(found(), NULL, 'vacuumed');
SELECT baton_internal.sweep('q') \g /dev/null
CALL baton.maintain('q');
SELECT is(found(), NULL, 'swept, maintained');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT found() AS rr \gset
COMMIT;
SELECT is(:{?rr}, FALSE, 'REPEATABLE READ');
BEGIN READ ONLY;
SELECT found() AS ro \gset
COMMIT;
SELECT is(:{?ro}, FALSE, 'read only');

-- rebuilt: sorted, in a new epoch, tokens refused, nothing lost
SELECT fence AS f FROM (SELECT (h('a8')).*) h \gset
SELECT epoch AS epoch FROM baton_internal.map_meta(:'seg') \gset
SELECT count(*) AS unsettled FROM baton_queue.q \gset
SET client_min_messages = error;
REINDEX INDEX :map;
SET client_min_messages = warning;
SELECT is(found(), NULL, 'after REINDEX');
SELECT cmp_ok((SELECT epoch FROM baton_internal.map_meta(:'seg')), '>', :'epoch'::bigint, 'in a new epoch');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('a8')], '{ack}')), 'stale_epoch', 'old tokens are refused');
SELECT is((SELECT count(*) FROM baton_queue.q), :unsettled::bigint, 'no message is lost');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE state = 'claimed'), 0, 'leases are forgotten');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE state = 'scheduled' AND not_before > now() + '50 min'), 1, 'due times are not, those of the enqueue');
SELECT cmp_ok((SELECT min(fence) FROM baton.claim('q', max_items => 5)), '>', :'f'::bigint, 'fence numbers grow');
SET client_min_messages = error;
VACUUM FULL :seg;
SET client_min_messages = warning;
SELECT is(found(), NULL, 'after VACUUM FULL');

-- damage, by a superuser's hand
SELECT min(id) AS victim FROM baton_queue.q WHERE state = 'ready' \gset
DELETE FROM :seg WHERE id = :victim;
SELECT is(found(), 'slot_without_row ' || :victim, 'a row that was deleted by plain SQL');
SELECT is((SELECT segment FROM baton.check('q')), substr(:'seg', 12), 'with its segment');
VACUUM :seg;
SELECT is(found(), NULL, 'until VACUUM takes it away');
ALTER TABLE :seg DISABLE TRIGGER refuse_update;
SELECT is(found(), 'update_not_refused', 'the trigger that refuses updates is disabled');
SELECT min(id) AS victim FROM baton_queue.q WHERE state = 'ready' \gset
UPDATE :seg SET payload = '"changed"' WHERE id = :victim;
ALTER TABLE :seg ENABLE TRIGGER refuse_update;
SELECT alike(found(), '%slot_without_row ' || :victim, 'a row that was updated nevertheless');
SET client_min_messages = error;
VACUUM FULL :seg;
SET client_min_messages = warning;
SELECT is(found(), NULL, 'VACUUM FULL repairs it');
SELECT is((SELECT payload FROM baton_queue.q WHERE id = :victim), '"changed"', 'to what the row says');
-- by session_replication_role, or a restore of data only
SELECT setval('baton_data.q1_id', 1) \g /dev/null
SELECT matches(found(), '^id_beyond_sequence \d+$', 'a sequence that is behind');
SELECT setval('baton_data.q1_id', 1000000) \g /dev/null
INSERT INTO baton_data.quarantined SELECT 1, id, 1, 1, now(), 'verb', NULL, NULL, NULL, m FROM :seg m WHERE id = :victim;
SELECT is(found(), 'quarantined_and_unsettled ' || :victim, 'quarantined and in a segment at once');
DELETE FROM baton_data.quarantined WHERE id = :victim;
SELECT is(found(), NULL, 'sound again');

SELECT is(head_of('SELECT FROM baton.check(NULL)'), '22023: a queue name must not be null', 'null');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
