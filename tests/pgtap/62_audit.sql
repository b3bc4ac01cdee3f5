-- The audit: who took work away, destroyed or overruled something. Only added to, and seen by those who may look at the queue.
\ir prelude.psql

SELECT plan(20);
CREATE TABLE roles (name text);
INSERT INTO roles SELECT 'baton_test_' || r FROM unnest('{owner,looker,none,monitor}'::text[]) r;
SELECT format('DROP ROLE IF EXISTS %I', name) FROM roles \gexec
SELECT format('CREATE ROLE %I', name) FROM roles \gexec
GRANT pg_monitor TO baton_test_monitor;
GRANT CREATE ON SCHEMA baton_queue TO baton_test_owner;
SELECT value_as('baton_test_owner', $$SELECT baton.create_queue('mine')$$) \g /dev/null
GRANT SELECT (id) ON baton_queue.mine TO baton_test_looker;
SELECT baton.create_queue('theirs') \g /dev/null
SELECT put('mine', 3) \g /dev/null
SELECT hold('a', 'mine'), hold('b', 'mine') \g /dev/null

SELECT is((SELECT count(*) FROM baton.audit), 0, 'nothing yet');
SELECT is(value_as('baton_test_owner', $$SELECT baton.fence('mine')$$), '2', 'fence, as the owner');
SELECT results_eq('SELECT actor, acting_as, action, queue, affected, reason, details FROM baton.audit',
    format('VALUES (%L, %L, %L, %L, 2::bigint, NULL, NULL::jsonb)', session_user, 'baton_test_owner', 'fence', 'mine'), 'session user, role, verb, queue and count');
SELECT ok(at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp(), 'and the time') FROM baton.audit;
BEGIN;
SELECT baton.fence('theirs') \g /dev/null
SELECT is((SELECT string_agg(queue, ',' ORDER BY at) FROM baton.audit), 'mine,theirs', 'seen by its own transaction');
ROLLBACK;
SELECT is((SELECT string_agg(queue, ',' ORDER BY at) FROM baton.audit), 'mine', 'and gone with it');
SELECT baton.fence('theirs') \g /dev/null

-- who sees what
SELECT is(value_as('baton_test_owner', $$SELECT string_agg(queue, ',') FROM baton.audit$$), 'mine', 'the owner sees its queue''s');
SELECT is(value_as('baton_test_looker', $$SELECT string_agg(queue, ',') FROM baton.audit$$), 'mine', 'so does who may look at one column');
SELECT is(value_as('baton_test_none', $$SELECT count(*) FROM baton.audit$$), '0', 'others see nothing');
SELECT is(value_as('baton_test_monitor', $$SELECT count(*) FROM baton.audit$$), '2', 'pg_monitor sees all');
SELECT is(value_as('baton_test_owner', $$SELECT baton.drop_queue('mine', discard => true)$$), 'true', 'the queue is dropped');
SELECT is(value_as('baton_test_owner', $$SELECT count(*) FROM baton.audit$$), '0', 'whoever may no longer look at it');
SELECT is(value_as('baton_test_monitor', $$SELECT string_agg(queue, ',' ORDER BY at) FROM baton.audit WHERE action = 'fence'$$), 'mine,theirs', 'the audit stays');

-- only added to, by the verbs
SELECT is(head_of('UPDATE baton_data.audit SET reason = NULL'), '0A000: rows of "audit" are never changed or removed', 'no UPDATE, not even by a superuser');
SELECT is(head_of('DELETE FROM baton_data.audit WHERE false'), '0A000: rows of "audit" are never changed or removed', 'no DELETE');
SELECT is(head_of('TRUNCATE baton_data.audit'), '0A000: rows of "audit" are never changed or removed', 'no TRUNCATE');
SET session_replication_role = replica;
SELECT is(head_of('DELETE FROM baton_data.audit'), '0A000: rows of "audit" are never changed or removed', 'nor where other triggers are off');
RESET session_replication_role;
SELECT is(value_as('baton_test_owner', 'SELECT 1 FROM baton_data.audit'), '42501: permission denied for schema baton_data', 'the table is closed');
SELECT is(value_as('baton_test_owner', 'SELECT baton_internal.refuse_change()'), '42501: permission denied for schema baton_internal', 'and so is its trigger''s function');
SELECT is(error_as('baton_test_owner', $$INSERT INTO baton.audit (action) VALUES ('forged')$$), '42501: permission denied for view audit', 'nobody adds to it by hand');
SELECT baton.drop_queue('theirs') \g /dev/null
SELECT format('DROP OWNED BY %I CASCADE', name) FROM roles \gexec
SELECT format('DROP ROLE %I', name) FROM roles \gexec
SELECT * FROM finish();
