-- What a verb costs in buffers (never in time): the same whatever lies before, behind and beside the messages it touches.
\ir prelude.psql

SELECT plan(27);
CREATE FUNCTION buffers(sql text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) ' || sql INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int;
END $$;
-- several times, each in a transaction of its own
CREATE TABLE costs (place text, verb text, buffers integer);
CREATE PROCEDURE measure(place text, queue text, times integer = 20) LANGUAGE plpgsql AS $$
DECLARE
    t text;
BEGIN
    FOR i IN -3..times LOOP  -- the first ones fill the session's caches
        INSERT INTO costs SELECT place, 'claim', b FROM buffers(format('SELECT FROM baton.claim(%L)', queue)) b WHERE i > 0; COMMIT;
        INSERT INTO costs SELECT place, 'enqueue', b FROM buffers(format('SELECT FROM baton.enqueue(%L, %L)', queue, '1')) b WHERE i > 0; COMMIT;
        INSERT INTO costs SELECT place, 'take', b FROM buffers(format('SELECT FROM baton.take(%L)', queue)) b WHERE i > 0; COMMIT;
        INSERT INTO costs SELECT place, 'enqueue 10', b FROM buffers(format('SELECT FROM baton.enqueue_batch(%L, %L)', queue, '{1,2,3,4,5,6,7,8,9,10}')) b WHERE i > 0; COMMIT;
        SELECT token INTO t FROM baton.claim(queue); COMMIT;
        INSERT INTO costs SELECT place, 'extend', b FROM buffers(format('SELECT baton.extend(%L)', t)) b WHERE i > 0; COMMIT;
        INSERT INTO costs SELECT place, 'ack', b FROM buffers(format('SELECT baton.ack(%L)', t)) b WHERE i > 0; COMMIT;
        SELECT token INTO t FROM baton.claim(queue); COMMIT;
        INSERT INTO costs SELECT place, 'release', b FROM buffers(format('SELECT FROM baton.release(%L, %L)', t, '50 s')) b WHERE i > 0; COMMIT;
        INSERT INTO costs SELECT place, 'claim 10', b FROM buffers(format('SELECT FROM baton.claim(%L, max_items => 10)', queue)) b WHERE i > 0; COMMIT;
    END LOOP;
END $$;
-- of twenty all but the three dearest: what others change in the catalog has to be read again now and then
CREATE FUNCTION most(place text, verb text) RETURNS integer LANGUAGE sql AS $$ SELECT percentile_disc(0.85) WITHIN GROUP (ORDER BY buffers)::integer FROM costs c WHERE c.place = most.place AND c.verb = most.verb $$;

SELECT baton.create_queue(q, lease => '1 h', segment_bytes => 1099511627776) FROM unnest('{small,backlog,in_flight,dead,scheduled,failed}'::text[]) q \g /dev/null
SELECT put('small', 600) \g /dev/null
SELECT put('backlog', 50000) \g /dev/null
-- 20,000 claims before it in line
SELECT put('in_flight', 20600) \g /dev/null
SELECT count(*) FROM baton.claim('in_flight', max_items => 10000) \g /dev/null
SELECT count(*) FROM baton.claim('in_flight', max_items => 10000) \g /dev/null
-- 20,000 dead rows before it, and a transaction that keeps them from being removed
SELECT current_database() AS gid \gset
BEGIN;
SELECT pg_current_xact_id() \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT put('dead', 20600) \g /dev/null
SELECT count(*) FROM baton.take('dead', 10000) \g /dev/null
SELECT count(*) FROM baton.take('dead', 10000) \g /dev/null
-- 20,000 that are not due, 20,000 that have failed and wait
SELECT count(*) FROM baton.enqueue_batch('scheduled', ARRAY(SELECT '1'::jsonb FROM generate_series(1, 20000)), delays => '{1 h}') \g /dev/null
SELECT put('scheduled', 600) \g /dev/null
SELECT put('failed', 20600) \g /dev/null
CREATE TABLE failing AS SELECT token FROM baton.claim('failed', max_items => 10000);
INSERT INTO failing SELECT token FROM baton.claim('failed', max_items => 10000);
SELECT count(*) FROM (SELECT array_agg(token) t FROM failing) f, LATERAL baton.settle(f.t, '{release}', '{1 h}') \g /dev/null
-- the first claim of each may have to sort out hints that did not fit; it is bounded by the map, not by its square
SELECT baton_internal.sweep(name) FROM baton.queues \g /dev/null
SELECT count(*) FROM baton.queues q, LATERAL baton.claim(q.name) \g /dev/null

CALL measure('small', 'small');
CALL measure('backlog', 'backlog');
CALL measure('in_flight', 'in_flight');
CALL measure('dead', 'dead');
CALL measure('scheduled', 'scheduled');
CALL measure('failed', 'failed');
SELECT cmp_ok(most('small', verb), '<=', limit_, format('%s touches no more than %s buffers', verb, limit_))
    FROM (VALUES ('claim', 6), ('take', 8), ('enqueue', 10), ('extend', 3), ('ack', 6), ('release', 4), ('claim 10', 20), ('enqueue 10', 24)) v (verb, limit_);
SELECT is_empty(format($$SELECT verb, most('small', verb) AS small, most(%1$L, verb) AS here FROM (SELECT DISTINCT verb FROM costs) v WHERE most(%1$L, verb) > most('small', verb) + 3$$, place), 'as many beside: ' || place)
    FROM unnest('{backlog,in_flight,dead,scheduled,failed}'::text[]) place;
SELECT is((SELECT count(*)::int FROM costs), 6 * 8 * 20, 'all were measured');

-- more and more dead rows under the pinned horizon: the last costs what the first did
CREATE TABLE tenths (tenth integer, buffers integer);
CREATE PROCEDURE through(queue text, n integer) LANGUAGE plpgsql AS $$
DECLARE
    t text;
BEGIN
    FOR i IN 0..n - 1 LOOP
        PERFORM FROM baton.enqueue(queue, '1'); COMMIT;
        IF i % 10 = 0 THEN
            INSERT INTO tenths SELECT i * 10 / n, b FROM buffers(format('SELECT FROM baton.take(%L)', queue)) b;
        ELSE
            PERFORM FROM baton.take(queue);
        END IF;
        COMMIT;
    END LOOP;
END $$;
SELECT baton.create_queue('through') \gset
CALL through('through', 2000);
SELECT is(sum(tenth::int)::int, 900, 'ten tenths') FROM tenths WHERE buffers > 0;
SELECT cmp_ok((SELECT avg(buffers) FROM tenths WHERE tenth = 9), '<=', (SELECT avg(buffers) + 1 FROM tenths WHERE tenth BETWEEN 1 AND 2), 'the last tenth costs what the second and third did');
ROLLBACK PREPARED :'gid';

-- one message, by its id: a few pages of the map, of some four hundred
CREATE PROCEDURE find(queue text, from_id bigint, step bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 0..6 LOOP
        INSERT INTO costs SELECT 'by id', 'explain', b FROM buffers(format('SELECT FROM baton.explain_message(%L, %s)', queue, from_id + i * step)) b WHERE i > 1; COMMIT;
        INSERT INTO costs SELECT 'by id', 'revoke', b FROM buffers(format('SELECT baton.revoke(%L, %s)', queue, from_id + i * step)) b WHERE i > 1; COMMIT;
        INSERT INTO costs SELECT 'by id', 'reschedule', b FROM buffers(format('SELECT FROM baton.reschedule(%L, %s, %L)', queue, from_id + i * step + 1, '1 s')) b WHERE i > 1; COMMIT;
        INSERT INTO costs SELECT 'by id', 'reschedule again', b FROM buffers(format('SELECT FROM baton.reschedule(%L, %s, %L)', queue, from_id + i * step + 1, '0 s')) b WHERE i > 1; COMMIT;
    END LOOP;
END $$;
SELECT baton.create_queue('found', segment_bytes => 1099511627776) \g /dev/null
SELECT put('found', 50000) AS found \gset
CALL find('found', :found + 2000, 6000);
SELECT is_empty($$SELECT verb, max(buffers) FROM costs WHERE place = 'by id' GROUP BY verb HAVING max(buffers) > 250$$, 'a message is found by its id in a few pages');

-- principle 4: no table of ours but the segments gathers dead rows
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT is_empty($$SELECT relid::regclass, n_tup_upd, n_dead_tup FROM pg_stat_all_tables WHERE schemaname IN ('baton_internal', 'baton_data') AND relid::regclass::text !~ 'q\d+_\d+$' AND (n_tup_upd > 10 OR n_dead_tup > 10)$$, 'no table but the segments gathers dead rows');
SELECT is((SELECT sum(n_tup_upd)::int FROM pg_stat_all_tables WHERE schemaname = 'baton_data'), 0, 'no message row is ever updated');

-- H2: nobody listens, nothing is notified
SELECT is(pg_notification_queue_usage(), 0::float8, 'no notification is written');
SELECT is_empty($$SELECT FROM pg_listening_channels()$$, 'nor listened for');
-- N1: no advisory locks
SELECT is_empty($$SELECT locktype, mode FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())$$, 'no advisory lock is left');

SELECT sound(name) FROM baton.queues WHERE name IN ('small', 'dead', 'failed', 'through') ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
