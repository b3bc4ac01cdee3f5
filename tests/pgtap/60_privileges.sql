-- Privileges are those of the queue's view: who may do what, and who not even see that there is something.
\ir prelude.psql

SELECT plan(114);
CREATE TABLE roles (name text);
INSERT INTO roles SELECT 'baton_test_' || r FROM unnest('{none,producer,worker,looker,oncall,chief,monitor,owner,heir,noinherit}'::text[]) r;
SELECT format('DROP ROLE IF EXISTS %I', name) FROM roles \gexec
SELECT format('CREATE ROLE %I', name) FROM roles \gexec
GRANT SELECT ON held TO PUBLIC;
GRANT pg_monitor TO baton_test_monitor;
GRANT baton_test_owner TO baton_test_heir;
ALTER ROLE baton_test_noinherit NOINHERIT;
GRANT baton_test_owner TO baton_test_noinherit;
SET client_min_messages = error;
GRANT CREATE ON SCHEMA public TO PUBLIC;
SET client_min_messages = warning;
CREATE FUNCTION may(role text, sql text) RETURNS text LANGUAGE sql AS $$ SELECT split_part(error_as('baton_test_' || may.role, may.sql), E'\n', 1) $$;

-- making queues: CREATE on schema baton_queue
SELECT is(error_as('baton_test_owner', $$SELECT baton.create_queue('q')$$), E'42501: permission denied to create queue "q"\nHINT: GRANT CREATE ON SCHEMA baton_queue TO baton_test_owner;', 'create_queue needs CREATE on schema baton_queue');
GRANT CREATE ON SCHEMA baton_queue TO baton_test_owner;
SELECT is(may('owner', $$SELECT baton.create_queue('q', backoff => '0')$$), 'no error', 'with it');
SELECT is((SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'baton_queue.q'::regclass), 'baton_test_owner'::name, 'the view is the creator''s');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace AND relname ~ '^q\d' AND relkind IN ('r', 'S') AND relowner <> 'baton_test_owner'::regrole$$, 'so are segments and sequence');
SELECT is(may('none', $$SELECT baton.create_queue('q', if_not_exists => true)$$), '42501: permission denied to create queue "q"', 'if_not_exists is no way around it');
SELECT baton.create_queue('secret') \gset
SELECT is((SELECT string_agg(grantee::regrole::text || '=' || privilege_type, ',' ORDER BY 1) FROM (SELECT DISTINCT grantee, privilege_type FROM pg_attribute a, aclexplode(a.attacl) WHERE a.attrelid = 'baton_queue.q'::regclass) g), 'pg_monitor=SELECT', 'a new queue grants nothing to anybody but its columns to pg_monitor');
SELECT is((SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'baton_queue.q'::regclass AND attnum > 0 AND attacl IS NULL), 'headers,payload_ref,payload,payload_bytes', 'none of the content');
SELECT is((SELECT count(*)::int FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'baton_queue.q'::regclass AND a.grantee <> c.relowner), 0, 'nothing on the whole view');

GRANT INSERT ON baton_queue.q TO baton_test_producer;
GRANT UPDATE ON baton_queue.q TO baton_test_worker;
GRANT SELECT ON baton_queue.q TO baton_test_looker;
GRANT SELECT (id, state, worker, lease_until) ON baton_queue.q TO baton_test_oncall;
GRANT DELETE ON baton_queue.q TO baton_test_chief;
SELECT FROM baton.enqueue_batch('q', ARRAY(SELECT jsonb_build_object('secret', i) FROM generate_series(1, 50) i));
SELECT FROM baton.enqueue('secret', '"hidden"');
SELECT hold('t' || i, 'q') FROM generate_series(1, 6) i \g /dev/null
SELECT hold('s', 'secret') \g /dev/null
SELECT baton.quarantine(tok('t6'), 'bad', '{"why": 1}') \g /dev/null
SELECT (h('t6')).id AS quarantined \gset

-- one call per verb with what it needs
CREATE TABLE calls (needs text, verb text, call text);
INSERT INTO calls VALUES
    ('INSERT', 'enqueue', $$SELECT FROM baton.enqueue('q', '1')$$), ('INSERT', 'enqueue_bytes', $$SELECT FROM baton.enqueue_bytes('q', 'x')$$),
    ('INSERT', 'enqueue_batch', $$SELECT FROM baton.enqueue_batch('q', '{1}')$$), ('INSERT', 'enqueue_batch_bytes', $$SELECT FROM baton.enqueue_batch_bytes('q', '{x}')$$),
    ('UPDATE', 'claim', $$SELECT FROM baton.claim('q')$$), ('UPDATE', 'take', $$SELECT FROM baton.take('q')$$), ('UPDATE', 'settle_and_claim', $$SELECT FROM baton.settle_and_claim('q', NULL)$$),
    ('UPDATE', 'why_empty', $$SELECT baton.why_empty('q')$$),
    ('LOOK', 'check', $$SELECT FROM baton.check('q')$$), ('LOOK', 'backlog', $$SELECT baton.backlog('q')$$), ('LOOK', 'explain_message', $$SELECT FROM baton.explain_message('q', 1)$$),
    ('LOOK', 'describe_queue', $$SELECT FROM baton.describe_queue('q')$$), ('LOOK', 'quarantined', $$SELECT FROM baton.quarantined('q')$$), ('LOOK', 'evidence', $$SELECT FROM baton.evidence('q', 1)$$),
    ('DELETE', 'revoke', $$SELECT baton.revoke('q', 1)$$),
    ('OWNER', 'alter', $$SELECT baton.alter_queue('q')$$), ('OWNER', 'pause', $$SELECT baton.pause('q')$$), ('OWNER', 'resume', $$SELECT baton.resume('q')$$),
    ('OWNER', 'fence', $$SELECT baton.fence('q')$$), ('OWNER', 'adopt', $$SELECT baton.adopt('q')$$), ('OWNER', 'activate', $$SELECT baton.activate('q')$$), ('OWNER', 'drop', $$SELECT baton.drop_queue('q', discard => true)$$);
CREATE TABLE rights (role text, has text[]);
INSERT INTO rights VALUES ('none', '{}'), ('producer', '{INSERT}'), ('worker', '{UPDATE}'), ('looker', '{LOOK}'), ('oncall', '{LOOK}'), ('chief', '{DELETE}'), ('monitor', '{LOOK}');
CREATE TABLE matrix AS SELECT r.role, c.needs, c.verb, c.needs = ANY (r.has) AS allowed, may(r.role, c.call) AS answer FROM rights r, calls c WHERE NOT (c.needs = 'OWNER' AND 'OWNER' = ANY (r.has));
SELECT is_empty('SELECT * FROM matrix WHERE allowed AND answer <> ''no error''', 'whoever has the grant may');
SELECT is_empty('SELECT * FROM matrix WHERE NOT allowed AND answer !~ ''^42501: ''', 'whoever has not is denied');
SELECT is_empty($$SELECT * FROM matrix WHERE NOT allowed AND answer <> CASE needs WHEN 'OWNER' THEN format('42501: must be owner of queue "q" to %s it', verb) ELSE '42501: permission denied for queue "q"' END$$, 'by the queue''s name');
SELECT cmp_ok((SELECT count(*)::int FROM matrix WHERE allowed), '>', 20, 'that were many allowed');
SELECT cmp_ok((SELECT count(*)::int FROM matrix WHERE NOT allowed), '>', 100, 'and many denied');
SELECT is(error_as('baton_test_none', $$SELECT FROM baton.enqueue('q', '1')$$), E'42501: permission denied for queue "q"\nDETAIL: INSERT on its view is needed to enqueue.\nHINT: GRANT INSERT ON baton_queue.q TO baton_test_none;', 'enqueue says what is missing');
SELECT is(error_as('baton_test_producer', $$SELECT FROM baton.claim('q')$$), E'42501: permission denied for queue "q"\nDETAIL: UPDATE on its view is needed to claim, take and settle.\nHINT: GRANT UPDATE ON baton_queue.q TO baton_test_producer;', 'claim too');
SELECT is(error_as('baton_test_worker', $$SELECT FROM baton.check('q')$$), E'42501: permission denied for queue "q"\nDETAIL: SELECT on its view is needed to look into the queue.\nHINT: GRANT SELECT ON baton_queue.q TO baton_test_worker;', 'and check');
SELECT is_empty($$SELECT c.call, a FROM calls c, LATERAL may('heir', c.call) a WHERE c.verb <> 'drop' AND a <> 'no error'$$, 'a member of the owning role may do all');
SELECT is_empty($$SELECT c.call, a FROM calls c, LATERAL may('owner', c.call) a WHERE c.verb <> 'drop' AND a <> 'no error'$$, 'and so the owner');
SELECT is(may('noinherit', $$SELECT FROM baton.enqueue('q', '1')$$), '42501: permission denied for queue "q"', 'a member that does not inherit may not');

-- tokens: the grant is needed as well
SELECT hold('t' || i, 'q') FROM generate_series(1, 6) i \g /dev/null
CREATE TABLE settling (verb text, call text);
INSERT INTO settling VALUES ('ack', 'SELECT baton.ack(tok(%L))'), ('ack_batch', 'SELECT baton.ack_batch(ARRAY[tok(%L)])'), ('release', 'SELECT FROM baton.release(tok(%L))'), ('quarantine', 'SELECT baton.quarantine(tok(%L))'),
    ('extend', 'SELECT baton.extend(tok(%L))'), ('extend', 'SELECT baton.extend(tok(%L), ''5 s'')'), ('start', 'SELECT baton.start(tok(%L))');
SELECT is(error_as('baton_test_none', 'SELECT baton.ack(tok(''t1''))'), format(E'42501: ack refused: no UPDATE privilege on the queue\nDETAIL: message %s of queue "q": forbidden: UPDATE on baton_queue.q is not granted.\nHINT: Ask the queue''s owner for GRANT UPDATE on its view.', (h('t1')).id), 'a token alone settles nothing');
SELECT is_empty($$SELECT r, verb, a FROM unnest('{none,producer,looker,oncall,chief,monitor}'::text[]) r, settling, LATERAL may(r, format(call, 't1')) a WHERE a <> format('42501: %s refused: no UPDATE privilege on the queue', verb)$$, 'nor by any other grant');
SELECT is_empty($$SELECT r, o FROM unnest('{none,producer,looker,oncall,chief,monitor}'::text[]) r, (VALUES ('SELECT outcome FROM baton.settle(ARRAY[tok(%L)], ''{ack}'')'), ('SELECT outcome FROM baton.extend_batch(ARRAY[tok(%L)])'), ('SELECT outcome FROM baton.hand_back(ARRAY[tok(%L)])')) v (c),
    LATERAL value_as('baton_test_' || r, format(c, 't1')) o WHERE o <> 'forbidden'$$, 'settle, extend_batch and hand_back answer forbidden');
SELECT is(value_as('baton_test_worker', $$SELECT string_agg(outcome, ',') FROM baton.settle(ARRAY[tok('t1'), tok('s'), tok('t2')], '{ack}')$$), 'acked,forbidden,acked', 'one of a queue that is not granted affects no other');
SELECT is(may('worker', 'SELECT baton.ack_batch(ARRAY[tok(''t3''), tok(''s'')])'), '42501: ack_batch refused: 1 of 2 tokens', 'ack_batch: all or none');
SELECT is(may('worker', 'SELECT baton.ack(tok(''t3''))'), 'no error', 'with the grant the token works, whoever claimed');
SELECT is(state_of('secret', (h('s')).id), 'claimed', 'the other queue''s claim is as it was');
-- T61: a right that is revoked while a lease runs
SELECT is(value_as('baton_test_worker', $$SELECT token FROM baton.claim('q')$$) ~ '^b1', true, 'claimed');
SELECT hold('r', 'q') \g /dev/null
REVOKE UPDATE ON baton_queue.q FROM baton_test_worker;
SELECT is(may('worker', 'SELECT baton.ack(tok(''r''))'), '42501: ack refused: no UPDATE privilege on the queue', 'revoked mid-lease: forbidden');
SELECT is(state_of('q', (h('r')).id), 'claimed', 'and the lease runs on');
GRANT UPDATE ON baton_queue.q TO baton_test_worker;
SELECT is(may('worker', 'SELECT baton.ack(tok(''r''))'), 'no error', 'granted again');

-- the view itself
SELECT is(may('producer', $$INSERT INTO baton_queue.q (payload) VALUES ('1')$$), 'no error', 'INSERT on the view');
SELECT is(may('producer', $$INSERT INTO baton_queue.q (payload) VALUES ('1') RETURNING id$$), '42501: permission denied for view q', 'RETURNING looks');
SELECT is(may('none', $$INSERT INTO baton_queue.q (payload) VALUES ('1')$$), '42501: permission denied for view q', 'not without the grant');
SELECT is(may('worker', $$INSERT INTO baton_queue.q (payload) VALUES ('1')$$), '42501: permission denied for view q', 'UPDATE does not enqueue');
SELECT is(may('producer', 'SELECT FROM baton_queue.q'), '42501: permission denied for view q', 'nor INSERT look');
SELECT is(may('worker', 'SELECT FROM baton_queue.q'), '42501: permission denied for view q', 'nor UPDATE');
SELECT cmp_ok(value_as('baton_test_looker', 'SELECT count(payload) FROM baton_queue.q')::int, '>', 30, 'SELECT looks, at payloads too');
SELECT cmp_ok(value_as('baton_test_oncall', 'SELECT count(id) + count(state) FROM baton_queue.q')::int, '>', 30, 'columns that are granted');
SELECT is(may('oncall', 'SELECT payload FROM baton_queue.q'), '42501: permission denied for view q', 'and no others');
SELECT is(may('oncall', 'SELECT * FROM baton_queue.q'), '42501: permission denied for view q', 'nor all');
SELECT is(may('oncall', 'SELECT id FROM baton_queue.q WHERE payload IS NOT NULL'), '42501: permission denied for view q', 'nor in a condition');
SELECT is(may('oncall', 'SELECT id FROM baton_queue.q v WHERE v::text ~ ''secret'''), '42501: permission denied for view q', 'nor as a whole row');
SELECT cmp_ok(value_as('baton_test_monitor', 'SELECT count(routing_key) + count(id) FROM baton_queue.q')::int, '>', 30, 'pg_monitor: everything but content');
SELECT is(may('monitor', 'SELECT payload FROM baton_queue.q'), '42501: permission denied for view q', 'no payload');
SELECT is(may('monitor', 'SELECT headers FROM baton_queue.q'), '42501: permission denied for view q', 'no headers');
SELECT is(may('worker', 'UPDATE baton_queue.q SET payload = ''1'''), '0A000: messages are not updated directly', 'UPDATE means claims, and no updates');
SELECT is(may('chief', 'DELETE FROM baton_queue.q'), '0A000: messages are not deleted directly', 'DELETE neither');
SELECT is(may('none', 'DELETE FROM baton_queue.q'), '42501: permission denied for view q', 'denied before that');
-- COPY
SET ROLE baton_test_producer;
COPY baton_queue.q (payload) FROM STDIN;
"copied"
\.
RESET ROLE;
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"copied"'), 1, 'COPY needs INSERT');
SELECT current_database() AS database \gset
\setenv PGTAP_DATABASE :database
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_DATABASE" -c "SET ROLE baton_test_none" -c "COPY baton_queue.q (payload) FROM STDIN" </dev/null 2>&1`
SELECT is(:'answer'::text, 'ERROR:  42501', 'and is denied without');
-- grants on single columns are grants to enqueue and to claim
GRANT INSERT (payload) ON baton_queue.q TO baton_test_none;
SELECT is(may('none', $$INSERT INTO baton_queue.q (payload) VALUES ('1')$$), 'no error', 'INSERT on a column: INSERT of it');
SELECT is(may('none', $$INSERT INTO baton_queue.q (payload, routing_key) VALUES ('1', 'k')$$), '42501: permission denied for view q', 'and of no other');
SELECT is(may('none', $$SELECT FROM baton.enqueue('q', '1', routing_key => 'k')$$), '42501: permission denied for queue "q"', 'the verb takes the whole');
REVOKE INSERT (payload) ON baton_queue.q FROM baton_test_none;

-- what the views and functions show
SELECT is(value_as('baton_test_' || r, 'SELECT coalesce(string_agg(name, '','' ORDER BY name), ''nothing'') FROM baton.queues'), shown, 'baton.queues for ' || r)
    FROM (VALUES ('none', 'nothing'), ('producer', 'nothing'), ('worker', 'nothing'), ('chief', 'nothing'), ('looker', 'q'), ('oncall', 'q'), ('owner', 'q'), ('heir', 'q'), ('monitor', 'q,secret')) v (r, shown);
SELECT is_empty($$SELECT r, v, n FROM unnest('{none,producer,worker,chief}'::text[]) r, unnest('{queue_stats,queue_counters,in_flight,segments}'::text[]) v, LATERAL value_as('baton_test_' || r, format('SELECT count(*) FROM baton.%I', v)) n WHERE n <> '0'$$, 'the other views show them nothing');
SELECT is_empty($$SELECT r, v, n FROM unnest('{looker,oncall,owner,monitor}'::text[]) r, unnest('{queue_stats,queue_counters,segments}'::text[]) v, LATERAL value_as('baton_test_' || r, format('SELECT count(*) FROM baton.%I', v)) n WHERE n = '0' OR n ~ ':'$$, 'and those who may look something');
SELECT is(value_as('baton_test_looker', $$SELECT count(*) FROM baton.in_flight WHERE queue = 'secret'$$), '0', 'of their queues only');
SELECT is_empty($$SELECT r, n FROM unnest('{none,looker,monitor}'::text[]) r, LATERAL value_as('baton_test_' || r, 'SELECT count(*) FROM baton.health') n WHERE n !~ '^\d+$'$$, 'health can be read by all');
SELECT is(value_as('baton_test_none', $$SELECT detail FROM baton.health WHERE item = 'queues'$$), '0 you may look at', 'without naming any');
SELECT is(value_as('baton_test_looker', format($$SELECT payload::text || error::text FROM baton.quarantined('q') WHERE id = %s$$, :quarantined)), '{"secret": 6}{"why": 1}', 'quarantined: with content for who may see it');
SELECT is(value_as('baton_test_oncall', format($$SELECT coalesce(payload::text, headers::text, payload_ref, payload_bytes::text, 'no content') || ', ' || reason FROM baton.quarantined('q') WHERE id = %s$$, :quarantined)), 'no content, bad', 'without for who may not');
SELECT is(value_as('baton_test_monitor', format($$SELECT coalesce(payload::text, headers::text, payload_ref, payload_bytes::text, 'no content') FROM baton.quarantined('q') WHERE id = %s$$, :quarantined)), 'no content', 'nor pg_monitor');
SELECT is(may('looker', $$SELECT FROM baton.quarantined('secret')$$), '42501: permission denied for queue "secret"', 'of another queue nothing');
SELECT is(value_as('baton_test_none', 'SELECT count(*) FROM baton.outcomes()')::int, 22, 'outcomes and help are for all');

-- leaks: a cheap function of the reader's own is not asked before the filter
CREATE TABLE leaked (what text);
GRANT ALL ON leaked TO PUBLIC;
SET ROLE baton_test_none;
CREATE FUNCTION leak(t text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN INSERT INTO leaked VALUES (t); RETURN true; END $$;
SELECT count(*) FROM baton.queues WHERE leak(name) \g /dev/null
SELECT count(*) FROM baton.queue_stats WHERE leak(queue) \g /dev/null
SELECT count(*) FROM baton.queue_counters WHERE leak(queue) \g /dev/null
SELECT count(*) FROM baton.in_flight WHERE leak(queue) OR leak(worker) \g /dev/null
SELECT count(*) FROM baton.segments WHERE leak(queue) \g /dev/null
SELECT count(*) FROM baton.health WHERE leak(CASE WHEN detail ~ 'secret' THEN detail END) AND detail ~ 'secret' \g /dev/null
RESET ROLE;
SELECT is_empty('SELECT * FROM leaked WHERE what IS NOT NULL', 'nothing leaks through a function in WHERE');

-- what nobody may name
SELECT is(may(r, 'SELECT * FROM baton_internal.queue'), '42501: permission denied for schema baton_internal', 'baton_internal is closed to ' || r) FROM unnest('{none,worker,looker,owner}'::text[]) r;
SELECT is(may(r, 'SELECT * FROM baton_data.q1_0'), '42501: permission denied for schema baton_data', 'baton_data is closed to ' || r) FROM unnest('{none,worker,looker,owner,monitor}'::text[]) r;
SELECT is_empty($$SELECT p.oid::regprocedure, a FROM pg_proc p, LATERAL may('none', format('SELECT %s(%s)', p.oid::regproc, (SELECT string_agg('NULL', ',') FROM generate_series(1, p.pronargs)))) a
    WHERE pronamespace = 'baton_internal'::regnamespace AND prorettype NOT IN ('trigger'::regtype, 'index_am_handler'::regtype) AND a !~ '^42501: permission denied for (schema baton_internal|function)'$$, 'no function of baton_internal can be called');
SELECT is_empty($$SELECT c.oid::regclass, p FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) p WHERE relnamespace IN ('baton_internal'::regnamespace, 'baton_data'::regnamespace) AND relkind IN ('r', 'v') AND c.relowner <> 'baton_test_owner'::regrole
    AND has_table_privilege('baton_test_none', c.oid, p) AND NOT (p = 'SELECT' AND c.relname ~ '^visible_')$$, 'no table of ours is granted to all');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'baton'::regnamespace AND prosecdef$$, 'no public function runs with its owner''s rights');
SELECT is(may('owner', 'UPDATE baton_data.q1_0 SET payload = ''1'''), '42501: permission denied for schema baton_data', 'the owner of a queue does not reach its segments');
SELECT is(may('none', $$CREATE TABLE baton_queue.t ()$$), '42501: permission denied for schema baton_queue', 'nobody plants tables beside the queues');
SELECT is(may('owner', $$SELECT baton.create_queue('mine')$$), 'no error', 'who may create');
SELECT is(may('heir', $$SELECT baton.drop_queue('mine')$$), 'no error', 'a member may drop');
SELECT is(may('owner', $$SELECT baton.drop_queue('secret', discard => true)$$), '42501: must be owner of queue "secret" to drop it', 'not another''s');
SELECT is(may('owner', $$SELECT baton.adopt()$$), 'no error', 'adopt() of all: of those that are one''s own');

-- SECURITY DEFINER wrappers and views act for their owner
SET ROLE baton_test_producer;
CREATE FUNCTION send(p jsonb) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT id FROM baton.enqueue('q', p) $$;
SET ROLE baton_test_worker;
CREATE FUNCTION fetch_one() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT token FROM baton.claim('q') $$;
CREATE FUNCTION finish_one(t text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT baton.ack(t) $$;
SET ROLE baton_test_owner;
CREATE VIEW sends AS SELECT payload FROM baton_queue.q;
GRANT INSERT ON sends TO baton_test_none;
RESET ROLE;
SELECT is(may('none', $$SELECT send('"wrapped"')$$), 'no error', 'a SECURITY DEFINER wrapper enqueues for its owner');
SELECT matches(value_as('baton_test_none', 'SELECT fetch_one()'), '^b1', 'one that claims');
INSERT INTO held SELECT 'w', c FROM baton.claim('q') c;
SELECT is(value_as('baton_test_none', 'SELECT finish_one(tok(''w''))'), 'acked', 'one that settles');
SELECT is(may('none', $$INSERT INTO sends VALUES ('"through a view"')$$), 'no error', 'a view of the application enqueues for its owner');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE payload = '"through a view"'), 1, 'and it is there');

-- the outbox acts for who writes the business table
CREATE TABLE business (i integer);
GRANT INSERT ON business TO baton_test_none, baton_test_producer;
CREATE TRIGGER o AFTER INSERT ON business REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q');
SELECT is(may('producer', 'INSERT INTO business VALUES (1)'), 'no error', 'outbox: with INSERT on the queue');
SELECT is(may('none', 'INSERT INTO business VALUES (1)'), '42501: permission denied for queue "q"', 'outbox: without it');

-- a view of the application looks for its owner, like any view
CREATE VIEW looks AS SELECT id, state FROM baton_queue.q;
GRANT SELECT ON looks TO baton_test_none;
SELECT is(may('none', 'SELECT * FROM looks'), 'no error', 'a view of the application over a queue''s view looks for its owner');
SELECT is(may('none', 'SELECT * FROM baton_queue.q'), '42501: permission denied for view q', 'the queue''s own view is closed as before');
DROP VIEW looks;

-- ownership
SELECT matches(may('owner', 'ALTER VIEW baton_queue.q OWNER TO baton_test_none'), '^42501: must be (member of role|able to SET ROLE) "baton_test_none"$', 'a queue is given away as a view is');
ALTER VIEW baton_queue.q OWNER TO baton_test_chief;
SELECT alike(error_as('baton_test_producer', $$SELECT FROM baton.enqueue('q', '1')$$), E'55000: baton_queue.q and the segments of queue "q" have different owners\nHINT: After ALTER VIEW ... OWNER TO, run SELECT baton.alter_queue(''q'') as a superuser.', 'half given away it does not work');
SELECT lives_ok($$SELECT baton.alter_queue('q')$$, 'alter_queue by a superuser hands over the segments');
SELECT is(may('producer', $$SELECT FROM baton.enqueue('q', '1')$$), 'no error', 'grants are kept');
SELECT is(may('chief', $$SELECT baton.pause('q')$$) || may('owner', $$SELECT baton.resume('q')$$), 'no error42501: must be owner of queue "q" to resume it', 'the new owner may, the old may not');
SELECT is(may('chief', $$SELECT baton.resume('q')$$), 'no error', 'resumed');
-- a view that takes a queue's place
SELECT baton.create_queue('victim') \gset
SELECT FROM baton.enqueue('victim', '"precious"');
ALTER VIEW baton_queue.victim RENAME TO hidden;
SELECT is(may('owner', 'CREATE VIEW baton_queue.victim AS SELECT 1 AS id'), 'no error', 'somebody puts a view of his own in the place of a queue''s');
SELECT alike(error_as('baton_test_owner', $$SELECT FROM baton.claim('victim')$$), '55000: baton_queue.victim and the segments of queue "victim" have different owners%', 'and gets nothing');
SELECT is(may('owner', $$SELECT baton.drop_queue('victim', discard => true)$$), '42501: must be owner of queue "victim" to drop it', 'nor can he drop it');
DROP VIEW baton_queue.victim;
ALTER VIEW baton_queue.hidden RENAME TO victim;
SELECT is((SELECT payload FROM baton.take('victim')), '"precious"', 'renamed back it is as it was');

DROP VIEW sends;
SELECT sound(name) FROM baton.queues ORDER BY name;
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT format('DROP OWNED BY %I CASCADE', name) FROM roles \gexec
SELECT format('DROP ROLE %I', name) FROM roles \gexec
SELECT * FROM finish();
