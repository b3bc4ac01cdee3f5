-- What the caller plants in his search_path is never used: functions, operators, casts, tables, types, settings.
\ir prelude.psql

SELECT plan(20);
SELECT baton.create_queue('q', backoff => '0') \gset
SELECT put('q', 50) AS first \gset
SELECT hold('t' || i, 'q') FROM generate_series(1, 20) i \g /dev/null
CREATE TABLE business (i integer);
CREATE TRIGGER o AFTER INSERT ON business REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q', 'i');

-- a schema full of traps: each one counts
CREATE SCHEMA trap;
CREATE SEQUENCE trap.sprung;
CREATE FUNCTION trap.caught() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN PERFORM nextval('trap.sprung'); END $$;
-- every function of pg_catalog that our SQL could mean, by its name and argument types
SELECT format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM trap.caught(); RETURN NULL; END $f$', proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid))
FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0 AND NOT proretset AND prorettype NOT IN ('internal'::regtype, 'cstring'::regtype, 'trigger'::regtype, 'event_trigger'::regtype)
  AND prorettype::regtype::text !~ '^any|internal|handler|record|void' AND pg_get_function_identity_arguments(oid) !~ 'any|internal|cstring|OUT |"char"|ORDER BY'
  AND proname IN ('format', 'clock_timestamp', 'now', 'statement_timestamp', 'has_column_privilege', 'has_any_column_privilege', 'pg_has_role', 'pg_get_userbyid', 'pg_total_relation_size', 'pg_size_pretty', 'pg_table_size', 'pg_indexes_size',
    'current_setting', 'current_database', 'nextval', 'lower', 'upper', 'trim', 'btrim', 'octet_length', 'date_part', 'extract', 'age', 'concat_ws', 'regexp_split_to_table', 'quote_ident', 'quote_literal', 'to_jsonb', 'row_to_json', 'array_length') \gexec
-- operators on the types that our SQL compares, joins and adds
SELECT format('CREATE FUNCTION trap.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM trap.caught(); RETURN NULL; END $f$', 'op' || oid, oprleft::regtype, oprright::regtype, oprresult::regtype)
FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' AND oprname IN ('=', '<>', '<', '>', '<=', '>=', '||', '+', '-', '*', '~', '~~', '->>') AND oprcode <> 0
  AND oprleft::regtype::text IN ('integer', 'bigint', 'text', 'name', 'oid', 'timestamp with time zone', 'interval', 'boolean', 'tid', 'xid', 'xid8', 'jsonb', 'numeric', 'double precision')
  AND oprright::regtype::text IN ('integer', 'bigint', 'text', 'name', 'oid', 'timestamp with time zone', 'interval', 'boolean', 'tid', 'xid', 'xid8', 'jsonb', 'numeric', 'double precision') \gexec
SELECT format('CREATE OPERATOR trap.%s (FUNCTION = trap.%I, LEFTARG = %s, RIGHTARG = %s)', oprname, 'op' || oid, oprleft::regtype, oprright::regtype)
FROM pg_operator o WHERE EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'trap'::regnamespace AND proname = 'op' || o.oid) \gexec
-- tables with names of ours, in trap and in pg_temp
SELECT format('CREATE TABLE trap.%1$I (id bigint, name text, queue_id integer, key bytea)', n) FROM unnest('{queue,quarantined,evidence,token_key,worker_name,pg_class,pg_index,pg_am,pg_locks,visible_queue,q}'::text[]) n \gexec
SELECT format('CREATE TEMP TABLE %1$I (id bigint, name text, queue_id integer, key bytea)', n) FROM unnest('{queue,quarantined,evidence,token_key,worker_name,visible_queue,q}'::text[]) n \gexec
CREATE TYPE trap.message AS (x integer);
CREATE DOMAIN trap.text AS pg_catalog.text CHECK (VALUE IS NULL);
SELECT cmp_ok((SELECT count(*)::int FROM pg_operator WHERE oprnamespace = 'trap'::regnamespace), '>', 100, 'more than a hundred operators are planted');
SELECT cmp_ok((SELECT count(*)::int FROM pg_proc WHERE pronamespace = 'trap'::regnamespace AND proname !~ '^op|caught'), '>', 25, 'and functions');

-- they do work
SET search_path = trap, pg_catalog, public, pg_temp;
SELECT 1 OPERATOR(pg_catalog.=) 1 AS fine, 1 = 1 AS trapped \g /dev/null
RESET search_path;
SELECT is((SELECT last_value::int FROM trap.sprung), 1, 'a trap counts');

-- every verb and view, from within: nothing is sprung, and each does its work
CREATE TABLE calls (n integer GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO calls (call) SELECT * FROM unnest(ARRAY[
    $$SELECT baton.create_queue('other', lease => '10 s', segments => 2, replicable => true)$$, $$SELECT baton.create_queue('other', if_not_exists => true)$$, $$SELECT baton.alter_queue('other', lease => '5 s')$$,
    $$SELECT * FROM baton.enqueue('q', '{"a": 1}', routing_key => 'k', headers => '{}', delay => '1 s', expires_at => '2100-01-01')$$, $$SELECT * FROM baton.enqueue_bytes('q', 'x')$$,
    $$SELECT * FROM baton.enqueue_batch('q', '{1,2}')$$, $$SELECT * FROM baton.enqueue_batch_bytes('q', '{x,y}')$$, $$INSERT INTO baton_queue.q (payload) VALUES ('1') RETURNING *$$, $$COPY baton_queue.q (payload) FROM PROGRAM 'echo 1'$$,
    $$INSERT INTO public.business VALUES (1)$$,
    $$SELECT * FROM baton.claim('q', 'w', 2, classes => NULL, max_bytes => 100000)$$, $$SELECT * FROM baton.take('q', 2)$$, $$SELECT baton.why_empty('q')$$, $$SELECT baton.channel('q')$$,
    format('SELECT baton.start(%L)', tok('t1')), format('SELECT baton.extend(%L, %L)', tok('t1'), '1 min'), format('SELECT * FROM baton.extend_batch(ARRAY[%L])', tok('t1')),
    format('SELECT baton.ack(%L)', tok('t1')), format('SELECT baton.ack_batch(ARRAY[%L])', tok('t2')), format('SELECT * FROM baton.release(%L, %L, %L, true, %L)', tok('t3'), '1 s', 'why', '{}'),
    format('SELECT * FROM baton.hand_back(ARRAY[%L])', tok('t4')), format('SELECT baton.quarantine(%L, %L, %L)', tok('t5'), 'why', '{}'),
    format('SELECT * FROM baton.settle(ARRAY[%L, %L], %L, %L, %L)', tok('t6'), tok('t7'), '{ack,quarantine}', '{0}', '{why}'), format('SELECT * FROM baton.settle_and_claim(%L, ARRAY[%L])', 'q', tok('t8')),
    $$SELECT * FROM baton.explain_message('q', 3)$$, $$SELECT * FROM baton.explain_message('q', 5)$$, $$SELECT * FROM baton.check('q')$$, $$SELECT baton.backlog('q')$$, $$SELECT * FROM baton.quarantined('q')$$, $$SELECT * FROM baton.evidence('q', 3)$$,
    $$SELECT * FROM baton.describe_queue('q')$$, $$SELECT * FROM baton.outcomes()$$, $$SELECT * FROM baton.help()$$, $$SELECT * FROM baton.help('claim')$$, $$TABLE baton.queues$$, $$TABLE baton.queue_stats$$, $$TABLE baton.queue_counters$$,
    $$TABLE baton.in_flight$$, $$TABLE baton.segments$$, $$TABLE baton.health$$, $$TABLE baton_queue.q$$, $$SELECT baton_internal.sweep('q')$$, $$SELECT baton_internal.rotate('q')$$,
    $$SELECT baton.pause('other')$$, $$SELECT baton.resume('other')$$, $$SELECT baton.adopt()$$, $$SELECT baton.fence('q')$$, $$SELECT baton.activate('q')$$, $$SELECT baton.drop_queue('other')$$]) u;
CREATE FUNCTION in_trap(sql pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$
DECLARE
    answer pg_catalog.text := 'no error';
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'trap, pg_catalog, pg_temp', true);
    BEGIN
        EXECUTE sql;
    EXCEPTION WHEN OTHERS THEN
        answer := SQLSTATE OPERATOR(pg_catalog.||) ': ' OPERATOR(pg_catalog.||) SQLERRM;
    END;
    PERFORM pg_catalog.set_config('search_path', 'public, pg_catalog', true);
    RETURN answer;
END $$;
CREATE TABLE answers AS SELECT c.call, in_trap(c.call) AS answer FROM calls c ORDER BY c.n;
SELECT is_empty($$SELECT * FROM answers WHERE answer <> 'no error'$$, 'every verb works with traps in front of pg_catalog');
SELECT is((SELECT count(*)::int FROM answers), 49, 'all of them');
SELECT is((SELECT last_value::int FROM trap.sprung), 1, 'no trap was sprung');
SELECT is_empty($$SELECT id FROM trap.queue UNION ALL SELECT id FROM trap.quarantined UNION ALL SELECT id FROM trap.evidence UNION ALL SELECT id FROM pg_temp.quarantined UNION ALL SELECT id FROM pg_temp.evidence UNION ALL SELECT id FROM pg_temp.queue$$, 'nothing was written into planted tables');
SELECT is((SELECT count(*)::int FROM baton.quarantined('q')), 2, 'what was quarantined is where it belongs');
SELECT is((SELECT count(*)::int FROM baton.evidence('q', (h('t3')).id)), 1, 'and evidence');

-- only pg_temp, only an empty path
CREATE FUNCTION in_path(path text, sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text := 'no error';
BEGIN
    PERFORM pg_catalog.set_config('search_path', path, true);
    BEGIN
        EXECUTE sql;
    EXCEPTION WHEN OTHERS THEN
        answer := SQLSTATE || ': ' || SQLERRM;
    END;
    PERFORM pg_catalog.set_config('search_path', 'public, pg_catalog', true);
    RETURN answer;
END $$;
UPDATE calls SET call = replace(call, '''other''', '''third''');
CREATE TABLE empty_path AS SELECT c.call, in_path('', c.call) AS answer FROM calls c WHERE c.call !~ '''b1' ORDER BY c.n;
SELECT is_empty($$SELECT * FROM empty_path WHERE answer <> 'no error'$$, 'every verb works with an empty search_path');
CREATE TABLE temp_path AS SELECT c.call, in_path('pg_temp', c.call) AS answer FROM calls c WHERE c.call !~ '''b1' ORDER BY c.n;
SELECT is_empty($$SELECT * FROM temp_path WHERE answer <> 'no error'$$, 'and with pg_temp in front');

-- settings of the caller that change what SQL means
CREATE FUNCTION with_setting(name text, value text, sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text; before text := current_setting(name);
BEGIN
    BEGIN
        PERFORM set_config(name, value, true);
    EXCEPTION WHEN feature_not_supported THEN
        RETURN 'no error'; -- a later server no longer has that value
    END;
    answer := error_of(sql);
    PERFORM set_config(name, before, true);
    RETURN answer;
END $$;
CREATE TABLE with_settings AS SELECT s.name, c.call, with_setting(s.name, s.value, c.call) AS answer
    FROM (VALUES ('quote_all_identifiers', 'on'), ('standard_conforming_strings', 'off'), ('transform_null_equals', 'on'), ('DateStyle', 'German'), ('IntervalStyle', 'iso_8601'), ('bytea_output', 'escape'), ('lc_numeric', 'C'),
        ('TimeZone', 'Asia/Kathmandu'), ('default_table_access_method', 'heap'), ('row_security', 'off'), ('check_function_bodies', 'off'), ('session_replication_role', 'origin'), ('extra_float_digits', '0'), ('jit', 'on'), ('default_tablespace', 'pg_default'),
        ('default_transaction_deferrable', 'on'), ('lock_timeout', '10s'), ('createrole_self_grant', ''), ('client_min_messages', 'error')) s (name, value), calls c
    WHERE c.call !~ '''b1' AND EXISTS (SELECT FROM pg_settings p WHERE p.name = s.name) ORDER BY s.name, c.n;
SELECT is_empty($$SELECT * FROM with_settings WHERE answer <> 'no error'$$, 'nor by settings that change what SQL means');

-- the objects of the extension refer to what they mean for good
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE pronamespace IN ('baton'::regnamespace, 'baton_internal'::regnamespace) AND l.lanname IN ('sql', 'plpgsql') AND prosqlbody IS NULL
    AND NOT EXISTS (SELECT FROM unnest(proconfig) c WHERE c = 'search_path=pg_catalog, pg_temp')$$, 'functions in SQL and PL/pgSQL are bound when they are made, or pin their path');
SELECT is_empty($$SELECT e.extname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'pg_baton' AND nspname <> 'pg_catalog'$$, 'the extension is made with nothing in its path but pg_catalog');

-- planted before the extension is
SELECT current_database() AS here \gset
SELECT :'here' || '_x' AS other \gset
SELECT format('CREATE DATABASE %I', :'other') \gexec
\setenv PGTAP_OTHER :other
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_OTHER" -c "CREATE SCHEMA baton" -c "CREATE EXTENSION pg_baton" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  42P06', 'a schema of its name that is there before: refused');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_OTHER" -c "SET client_min_messages = error" -c "DROP SCHEMA baton" -c "CREATE SCHEMA baton_queue" -c "CREATE EXTENSION pg_baton" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  42P06', 'or one of the others');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_OTHER" -c "SET client_min_messages = error" -c "DROP SCHEMA baton_queue" -c "CREATE FUNCTION public.format(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'" -c "CREATE EXTENSION pg_baton" -c "SELECT baton.create_queue('q')" 2>&1`
SELECT is(:'answer'::text, 't', 'without them it is made');
\set answer `psql -X -A -t -q -v VERBOSITY=sqlstate -d "$PGTAP_OTHER" -c "ALTER EXTENSION pg_baton SET SCHEMA public" 2>&1`
SELECT is(:'answer'::text, 'ERROR:  0A000', 'and is not moved');
SELECT format('DROP DATABASE %I WITH (FORCE)', :'other') \gexec

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
