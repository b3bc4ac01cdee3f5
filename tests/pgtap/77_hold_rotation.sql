-- hold_rotation: no truncation for as long as it says, for whoever dumps or reads for long; who may hold, for how long, and
-- how it ends. The clock decides as it does on leases, so it can be moved.
\ir prelude.psql

SELECT plan(36);
CREATE TABLE roles (name text);
INSERT INTO roles SELECT 'baton_test_' || r FROM unnest('{owner,other}'::text[]) r;
SELECT format('DROP ROLE IF EXISTS %I', name) FROM roles \gexec
SELECT format('CREATE ROLE %I', name) FROM roles \gexec
GRANT CREATE ON SCHEMA baton_queue TO baton_test_owner;
SELECT value_as('baton_test_owner', $$SELECT baton.create_queue('mine', segments => 2, segment_bytes => 65536)$$) \g /dev/null
SELECT baton.create_queue('other', segments => 2, segment_bytes => 65536) \g /dev/null
CREATE FUNCTION option(queue text) RETURNS text LANGUAGE sql AS $$ SELECT value FROM baton.describe_queue(queue) WHERE option = 'rotation_held_until' $$;
-- a full first segment, worked off; writing has moved on
CREATE FUNCTION turn(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(e.id) FROM baton.enqueue_batch(queue, array_fill(to_jsonb(repeat('x', 700)), ARRAY[200])) e;
$$;
CREATE FUNCTION work_off(queue text) RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM baton.take(queue, 1000) $$;
CREATE FUNCTION emptied(queue text) RETURNS boolean LANGUAGE sql AS $$ SELECT state = 'empty' FROM baton.segments s WHERE s.queue = emptied.queue AND segment = 0 $$;
-- tries until it is reclaimed, for half a minute at most: other sessions' locks and snapshots come and go
CREATE PROCEDURE reclaim(queue text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1500 LOOP
        PERFORM baton_internal.rotate(queue);
        COMMIT;
        EXIT WHEN emptied(queue);
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;
SELECT turn(q) FROM (VALUES ('mine'), ('other')) v (q) \g /dev/null
SELECT turn(q) FROM (VALUES ('mine'), ('other')) v (q) \g /dev/null
SELECT work_off(q) FROM (VALUES ('mine'), ('other')) v (q) \g /dev/null

-- what may be asked
SELECT is(option('mine'), 'no', 'not held');
SELECT is(head_of('SELECT baton.hold_rotation(NULL)'), '22023: how_long must not be null', 'NULL');
SELECT is(head_of($$SELECT baton.hold_rotation('-1 s', 'mine')$$), '22023: how_long is out of range', 'a negative time');
SELECT is(head_of($$SELECT baton.hold_rotation('8 d', 'mine')$$), '22023: how_long is out of range', 'more than a week');
SELECT is(head_of($$SELECT baton.hold_rotation('1 month', 'mine')$$), '22023: how_long must not contain months or years', 'months');
SELECT is(head_of($$SELECT baton.hold_rotation('1 h', 'none')$$), '42704: queue "none" does not exist', 'no such queue');
SELECT is(head_of($$SELECT baton.hold_rotation('1 h', '')$$), '22023: a queue name must have 1 to 63 bytes', 'no name');
SELECT is(split_part(error_as('baton_test_other', $$SELECT baton.hold_rotation('1 h', 'mine')$$), E'\n', 1), '42501: must be owner of queue "mine" to hold its rotation', 'somebody else''s queue');
SELECT is(value_as('baton_test_other', $$SELECT baton.hold_rotation('1 h') IS NULL$$), 'true', 'who owns no queue holds none');
SELECT is(option('mine') || ' ' || option('other'), 'no no', 'indeed');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT baton.hold_rotation('1 h', 'mine')$$), '25006: cannot execute hold_rotation in a read-only transaction', 'it writes');
ROLLBACK;

-- one queue
SELECT is(value_as('baton_test_owner', $$SELECT baton.hold_rotation('2 h', 'mine') > now() + interval '119 min'$$), 'true', 'it says until when');
SELECT ok(option('mine')::timestamptz > now() + interval '119 min', 'and so does describe_queue');
SELECT is(option('other'), 'no', 'only that queue');
SELECT alike(detail, 'held by hold_rotation: mine until %', 'health says so') FROM baton.health WHERE item = 'rotation';
SELECT is(state, 'warning', 'and warns, since the ring is over its size') FROM baton.health WHERE item = 'rotation';
SELECT ok(baton.hold_rotation('1 h', 'mine') > now() + interval '119 min', 'a shorter hold takes nothing from a longer one');
SELECT ok(option('mine')::timestamptz > now() + interval '119 min', 'which stays');
BEGIN;
SELECT baton.hold_rotation('0', 'mine') \g /dev/null
ROLLBACK;
SELECT ok(option('mine')::timestamptz > now() + interval '119 min', 'it joins the transaction');
SELECT results_eq($$SELECT actor = session_user, acting_as, queue, affected, (details->>'until')::timestamptz > now() FROM baton.audit WHERE action = 'hold_rotation'$$, $$VALUES (true, 'baton_test_owner', 'mine', NULL::bigint, true)$$, 'and is audited where it changed something');

-- nothing is truncated
SET pg_baton.clock_offset = '100 min';
SELECT is(baton_internal.rotate('mine'), 0, 'nothing is truncated');
CALL baton.maintain('mine');
SELECT is(emptied('mine'), false, 'by hand neither');
CALL reclaim('other');
SELECT ok(emptied('other'), 'another queue is');
SET pg_baton.clock_offset = '121 min';
CALL reclaim('mine');
SELECT ok(emptied('mine'), 'it ends by itself');
SELECT ok(baton.hold_rotation('1 h', 'mine') > now() + interval '180 min', 'from now on, by the clock that decides');
RESET pg_baton.clock_offset;

-- all of the caller's
SELECT is(baton.hold_rotation('0', 'mine'), NULL::timestamptz, '0 ends it');
SELECT is(option('mine'), 'no', 'it is over');
SELECT is(state || ' ' || detail, 'ok not held', 'says health') FROM baton.health WHERE item = 'rotation';
SELECT is(value_as('baton_test_owner', $$SELECT baton.hold_rotation('1 h') > now()$$), 'true', 'all queues of the caller''s');
SELECT is(option('mine') <> 'no' AND option('other') = 'no', true, 'and no others');
SELECT ok(baton.hold_rotation('2 h') < now() + interval '121 min', 'a superuser''s: all; the earliest end is what it says');
SELECT is((SELECT count(*) FROM baton_internal.queue WHERE rotation_held_until > now() + interval '1 h'), 2, 'both');
SELECT is((SELECT count(*) FROM baton.audit WHERE action = 'hold_rotation' AND queue = 'other'), 1, 'each with its row');
SELECT baton.hold_rotation('0') \g /dev/null
SELECT is(option('mine') || ' ' || option('other'), 'no no', 'and 0 for all');

-- with a queue that is damaged
ALTER TABLE baton_data.q1_1 RENAME TO lost;
SELECT ok(baton.hold_rotation('1 h') > now(), 'a damaged queue keeps nobody from holding the others');
SELECT is(baton.hold_rotation('0'), NULL::timestamptz, 'and letting go');
ALTER TABLE baton_data.lost RENAME TO q1_1;
SELECT baton.drop_queue('mine', discard => true), baton.drop_queue('other', discard => true) \g /dev/null
SELECT format('DROP OWNED BY %I CASCADE', name) FROM roles \gexec
SELECT format('DROP ROLE %I', name) FROM roles \gexec
SELECT * FROM finish();
