-- The public interface, frozen: names, parameters and results of everything in schema baton. Whoever changes a line here
-- changes what applications are written against.
\ir prelude.psql

SELECT plan(32);

SELECT set_eq($$SELECT proname::text, replace(pg_get_function_identity_arguments(oid), 'timestamp with time zone', 'timestamptz'), coalesce(replace(pg_get_function_result(oid), 'timestamp with time zone', 'timestamptz'), '')
    FROM pg_proc WHERE pronamespace = 'baton'::regnamespace$$, $$VALUES
    ('ack', 'token text', 'text'),
    ('ack_batch', 'tokens text[]', 'integer'),
    ('activate', 'queue text', 'bigint'),
    ('adopt', 'queue text', 'integer'),
    ('alter_queue', 'name text, lease interval, min_lease interval, max_lease interval, max_lifetime interval, max_attempts integer, claim_ceiling integer, backoff interval, max_backoff interval, max_delay interval, max_payload_bytes integer, max_headers_bytes integer, durability text, claim_flush boolean, segment_bytes bigint, retention interval, replay_window interval, expired text, expiry_ends_lease boolean, start_within interval, notify boolean', 'void'),
    ('backlog', 'queue text', 'double precision'),
    ('channel', 'queue text', 'text'),
    ('check', 'queue text', 'TABLE(segment text, problem text, id bigint, detail text)'),
    ('claim', 'queue text, worker text, max_items integer, lease interval, classes text[], max_bytes integer, attempt_id uuid', 'SETOF baton.delivery'),
    ('create_queue', 'name text, if_not_exists boolean, lease interval, min_lease interval, max_lease interval, max_lifetime interval, max_attempts integer, claim_ceiling integer, backoff interval, max_backoff interval, max_delay interval, max_payload_bytes integer, max_headers_bytes integer, durability text, claim_flush boolean, segments integer, segment_bytes bigint, replicable boolean, retention interval, replay_window interval, expired text, expiry_ends_lease boolean, start_within interval, notify boolean', 'boolean'),
    ('describe_queue', 'queue text', 'TABLE(option text, value text, meaning text)'),
    ('drop_queue', 'name text, if_exists boolean, discard boolean', 'boolean'),
    ('enqueue', 'queue text, payload jsonb, message_id text, routing_key text, message_class text, priority integer, headers jsonb, delay interval, not_before timestamptz, expires_at timestamptz, payload_ref text', 'TABLE(id bigint, state text)'),
    ('enqueue_batch', 'queue text, payloads jsonb[], message_ids text[], routing_keys text[], message_classes text[], priorities integer[], headers jsonb[], delays interval[], not_befores timestamptz[], expires_ats timestamptz[], payload_refs text[]', 'TABLE(ord integer, id bigint, state text)'),
    ('enqueue_batch_bytes', 'queue text, payloads bytea[], message_ids text[], routing_keys text[], message_classes text[], priorities integer[], headers jsonb[], delays interval[], not_befores timestamptz[], expires_ats timestamptz[], payload_refs text[]', 'TABLE(ord integer, id bigint, state text)'),
    ('enqueue_bytes', 'queue text, payload bytea, message_id text, routing_key text, message_class text, priority integer, headers jsonb, delay interval, not_before timestamptz, expires_at timestamptz, payload_ref text', 'TABLE(id bigint, state text)'),
    ('evidence', 'queue text, id bigint', 'TABLE(at timestamptz, generation bigint, failures integer, worker text, verdict text, reason text, error jsonb)'),
    ('explain_message', 'queue text, id bigint', 'TABLE(obstacle text, detail text, pids integer[], until timestamptz)'),
    ('extend', 'token text, lease interval', 'timestamptz'),
    ('extend_batch', 'tokens text[], lease interval', 'TABLE(ord integer, outcome text, lease_until timestamptz)'),
    ('fence', 'queue text', 'bigint'),
    ('hand_back', 'tokens text[]', 'TABLE(ord integer, outcome text)'),
    ('help', 'topic text', 'SETOF text'),
    ('hold', 'queue text, reason text', 'void'),
    ('hold_rotation', 'how_long interval, queue text', 'timestamptz'),
    ('maintain', 'IN queue text', ''),
    ('lease_grace', 'queue text, grace interval, reason text', 'TABLE(extended bigint, capped bigint)'),
    ('outbox', '', 'trigger'),
    ('outcomes', '', 'TABLE(outcome text, sqlstate text, meaning text)'),
    ('pause', 'queue text', 'void'),
    ('quarantine', 'token text, reason text, error jsonb', 'text'),
    ('quarantined', 'queue text', 'TABLE(id bigint, quarantined_at timestamptz, cause text, reason text, worker text, generation bigint, failures integer, message_id text, routing_key text, message_class text, priority integer, enqueued_at timestamptz, error jsonb, headers jsonb, payload_ref text, payload jsonb, payload_bytes bytea)'),
    ('release', 'token text, delay interval, reason text, failed boolean, error jsonb', 'TABLE(state text, not_before timestamptz, failures integer)'),
    ('replay', 'queue text, from_time timestamptz, until_time timestamptz, message_class text, routing_key text, ids bigint[], dry_run boolean, rate integer, max_items integer, reason text', 'TABLE(messages bigint, bytes bigint, oldest timestamptz, newest timestamptz, last_due timestamptz, was_dry_run boolean)'),
    ('reschedule', 'queue text, id bigint, delay interval, not_before timestamptz, reason text', 'TABLE(state text, due timestamptz)'),
    ('resume', 'queue text', 'void'),
    ('retained', 'queue text, from_time timestamptz, until_time timestamptz, ids bigint[], max_items integer', 'TABLE(id bigint, settled_at timestamptz, drop_at timestamptz, worker text, generation bigint, failures integer, message_id text, routing_key text, message_class text, priority integer, enqueued_at timestamptz, headers jsonb, payload_ref text, payload jsonb, payload_bytes bytea)'),
    ('revoke', 'queue text, id bigint, failed boolean, delay interval, reason text', 'text'),
    ('settle', 'tokens text[], verdicts text[], delays interval[], reasons text[]', 'TABLE(ord integer, outcome text)'),
    ('settle_and_claim', 'queue text, tokens text[], verdicts text[], worker text, max_items integer, lease interval, classes text[], max_bytes integer, delays interval[], reasons text[]', 'TABLE(ord integer, outcome text, token text, id bigint, message_id text, routing_key text, message_class text, priority integer, generation bigint, failures integer, enqueued_at timestamptz, lease_until timestamptz, fence bigint, headers jsonb, payload jsonb, payload_bytes bytea, payload_ref text, expires_at timestamptz)'),
    ('start', 'token text', 'timestamptz'),
    ('take', 'queue text, max_items integer, worker text, classes text[], max_bytes integer', 'SETOF baton.message'),
    ('unhold', 'queue text, reason text', 'boolean'),
    ('uninstall', 'dry_run boolean, discard boolean', 'TABLE(action text, kind text, object text, unsettled bigint, quarantined bigint, retained bigint, detail text)'),
    ('wait', 'IN queue text, IN timeout interval, INOUT reason text', ''),
    ('wait_any', 'IN queues text[], IN timeout interval, INOUT queue text', ''),
    ('why_empty', 'queue text, worker text', 'text')$$, 'functions and procedures');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace GROUP BY proname HAVING count(*) > 1$$, 'no two share a name');
SELECT results_eq($$SELECT (attname || ' ' || format_type(atttypid, atttypmod)) COLLATE "default" FROM pg_attribute WHERE attrelid = 'baton.delivery'::regclass AND attnum > 0 ORDER BY attnum$$, $$VALUES
    ('token text'), ('id bigint'), ('message_id text'), ('routing_key text'), ('message_class text'), ('priority integer'), ('generation bigint'), ('failures integer'), ('enqueued_at timestamp with time zone'),
    ('lease_until timestamp with time zone'), ('fence bigint'), ('headers jsonb'), ('payload jsonb'), ('payload_bytes bytea'), ('payload_ref text'), ('expires_at timestamp with time zone')$$, 'what a claim returns');
SELECT results_eq($$SELECT (attname || ' ' || format_type(atttypid, atttypmod)) COLLATE "default" FROM pg_attribute WHERE attrelid = 'baton.message'::regclass AND attnum > 0 ORDER BY attnum$$, $$VALUES
    ('id bigint'), ('enqueued_at timestamp with time zone'), ('not_before timestamp with time zone'), ('expires_at timestamp with time zone'), ('queue_id integer'), ('lane integer'), ('generation integer'), ('failures integer'),
    ('priority integer'), ('message_id text'), ('routing_key text'), ('message_class text'), ('payload_ref text'), ('headers jsonb'), ('payload jsonb'), ('payload_bytes bytea')$$, 'the row of a segment: on disk, so new columns come last');
SELECT columns_are('baton', v, c, v) FROM (VALUES
    ('queues', '{name,owner,state,durability,lease,max_attempts,segments,size,created_at}'::name[]), ('queue_stats', '{queue,ready,scheduled,claimed,settling,quarantined,oldest_ready,waiting,expired,not_started}'),
    ('queue_counters', '{queue,enqueued,claimed,acked,released,quarantined,expired_leases,fenced,expired}'), ('in_flight', '{queue,id,state,worker,held,running,lease_left,generation,failures,not_started,session_bound}'),
    ('segments', '{queue,segment,state,unsettled,settled,messages_size,map_size,open_seq,epoch,kept_by}'), ('health', '{item,state,detail}'), ('horizon', '{kind,who,pid,held,transactions,remedy}'), ('audit', '{at,actor,acting_as,action,queue,affected,reason,details}')) x (v, c);
SELECT schemas_are('{baton,baton_queue,baton_data,baton_internal,public}'::name[], 'schemas');
SELECT is((SELECT extrelocatable FROM pg_extension WHERE extname = 'pg_baton'), false, 'not relocatable');
SELECT is((SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pg_baton'), 'pg_catalog', 'made with pg_catalog as its only path');

-- what every verb promises the planner
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace AND proname NOT IN ('help', 'outcomes') AND prokind = 'f' AND prorettype <> 'trigger'::regtype AND (provolatile <> 'v' OR proparallel <> 'u')$$, 'verbs are volatile and parallel unsafe');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace AND proisstrict$$, 'none is strict: a null is an argument like any other, and never makes a verb do nothing');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace AND provariadic <> 0$$, 'none is variadic');
SELECT is_empty($$SELECT p.proname, d.n FROM pg_proc p, LATERAL (SELECT pronargs - pronargdefaults AS n) d WHERE pronamespace = 'baton'::regnamespace AND prokind = 'f' AND d.n > 2$$, 'no verb demands more than two arguments');
SELECT is_empty($$SELECT proname FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE pronamespace = 'baton'::regnamespace AND l.lanname NOT IN ('c', 'sql', 'plpgsql')$$, 'in C, SQL or PL/pgSQL');

-- every call works with untyped literals, positional and named
SELECT baton.create_queue('q') \gset
SELECT is((SELECT state FROM baton.enqueue('q', '{}', 'm', 'k', 'c', '5', '{}', NULL, '2020-01-01', '2100-01-01', 'r')), 'ready', 'enqueue, all positional and untyped');
SELECT is((SELECT state FROM baton.enqueue(payload => '{}', queue => 'q', delay => '0')), 'ready', 'named, in any order');
SELECT is((SELECT state FROM baton.enqueue_bytes('q', '\x00', 'm', 'k', 'c', '5', '{}', '0', NULL, '2100-01-01', 'r')), 'ready', 'enqueue_bytes');
SELECT is((SELECT count(*)::int FROM baton.enqueue_batch('q', '{1,2}', '{m}', '{k}', '{c}', '{5}', '{"{}"}', '{0}', NULL, '{2100-01-01}', '{r}')), 2, 'enqueue_batch');
SELECT is((SELECT count(*)::int FROM baton.claim('q', 'w', '2', '30 s', '{c}', '100000')), 2, 'claim');
SELECT is((SELECT count(*)::int FROM baton.take('q', '1', 'w', '{c}', '100000')), 1, 'take');
-- and with parameters whose types the server infers
PREPARE e AS SELECT state FROM baton.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
SELECT results_eq($$EXECUTE e ('q', '1', 'm', 'k', 'c', 5, '{}', '0', NULL, NULL, NULL)$$, $$VALUES ('ready')$$, 'enqueue with inferred parameters');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'e'), '{text,jsonb,text,text,text,integer,jsonb,interval,"timestamp with time zone","timestamp with time zone",text}', 'of these types');
PREPARE c AS SELECT token FROM baton.claim($1, $2, $3, $4, $5, $6);
CREATE TABLE tokens AS EXECUTE c ('q', 'w', 1, '30 s', NULL, NULL);
SELECT is((SELECT count(*)::int FROM tokens), 1, 'claim');
PREPARE s AS SELECT outcome FROM baton.settle($1, $2, $3, $4);
SELECT results_eq(format('EXECUTE s (ARRAY[%L], %L, NULL, NULL)', (SELECT token FROM tokens), '{ack}'), $$VALUES ('acked')$$, 'settle');

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
