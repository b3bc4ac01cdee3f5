-- From 0.1.0 to 0.2.0.
\echo Use "ALTER EXTENSION pg_baton UPDATE TO '0.2.0'" to load this file. \quit

-- A package that is newer than the running server would leave SQL that its library does not know.
DO LANGUAGE plpgsql $$
BEGIN
    IF pg_catalog.string_to_array(baton_internal.library_version(), '.')::integer[] < ARRAY[0, 2, 0] THEN
        RAISE EXCEPTION 'the library that is loaded is pg_baton %', baton_internal.library_version()
            USING ERRCODE = 'QB009', HINT = 'Restart the server, then run ALTER EXTENSION pg_baton UPDATE again.';
    END IF;
END
$$;

ALTER TABLE baton_internal.queue
    ADD COLUMN retention           interval NOT NULL DEFAULT '0',
    ADD COLUMN replay_window       interval NOT NULL DEFAULT '0',
    ADD COLUMN expired             text     NOT NULL DEFAULT 'drop' CHECK (expired IN ('drop', 'keep')),
    ADD COLUMN expiry_ends_lease   boolean  NOT NULL DEFAULT false,
    ADD COLUMN start_within        interval NOT NULL DEFAULT '0',
    ADD COLUMN notify              boolean  NOT NULL DEFAULT false,
    ADD COLUMN held                text,
    ADD COLUMN rotation_held_until timestamptz;

DROP FUNCTION baton.create_queue;
CREATE FUNCTION baton.create_queue(
    name text, if_not_exists boolean DEFAULT false,
    lease interval DEFAULT NULL, min_lease interval DEFAULT NULL, max_lease interval DEFAULT NULL, max_lifetime interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, claim_ceiling integer DEFAULT NULL, backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL,
    max_delay interval DEFAULT NULL, max_payload_bytes integer DEFAULT NULL, max_headers_bytes integer DEFAULT NULL,
    durability text DEFAULT NULL, claim_flush boolean DEFAULT NULL, segments integer DEFAULT NULL, segment_bytes bigint DEFAULT NULL,
    replicable boolean DEFAULT NULL,
    retention interval DEFAULT NULL, replay_window interval DEFAULT NULL, expired text DEFAULT NULL, expiry_ends_lease boolean DEFAULT NULL,
    start_within interval DEFAULT NULL, notify boolean DEFAULT NULL)
    RETURNS boolean AS 'MODULE_PATHNAME', 'baton_create_queue' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.create_queue IS 'make a queue; true if it was created';

DROP FUNCTION baton.alter_queue;
CREATE FUNCTION baton.alter_queue(
    name text,
    lease interval DEFAULT NULL, min_lease interval DEFAULT NULL, max_lease interval DEFAULT NULL, max_lifetime interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, claim_ceiling integer DEFAULT NULL, backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL,
    max_delay interval DEFAULT NULL, max_payload_bytes integer DEFAULT NULL, max_headers_bytes integer DEFAULT NULL,
    durability text DEFAULT NULL, claim_flush boolean DEFAULT NULL, segment_bytes bigint DEFAULT NULL,
    retention interval DEFAULT NULL, replay_window interval DEFAULT NULL, expired text DEFAULT NULL, expiry_ends_lease boolean DEFAULT NULL,
    start_within interval DEFAULT NULL, notify boolean DEFAULT NULL)
    RETURNS void AS 'MODULE_PATHNAME', 'baton_alter_queue' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.alter_queue IS 'change options of a queue; NULL leaves an option as it is';

CREATE OR REPLACE VIEW baton_internal.visible_queue WITH (security_barrier) AS
SELECT q.id, q.name, q.durability, q.claim_flush, q.replicable, q.segments, q.segment_bytes, q.lease, q.min_lease, q.max_lease,
       q.max_lifetime, q.max_attempts, q.claim_ceiling, q.backoff, q.max_backoff, q.max_delay, q.max_payload_bytes,
       q.max_headers_bytes, q.paused, q.created_at, q.incarnation,
       baton_internal.at_home(q.home_system, q.home_database) AS at_home,
       v.oid AS view_oid, v.relowner AS owner,
       v.relkind = 'v'
       AND EXISTS (SELECT FROM pg_catalog.pg_class s
                   WHERE s.relnamespace = 'baton_data'::regnamespace AND s.relname = pg_catalog.format('q%s_id', q.id)::name)
       AND q.segments = (SELECT pg_catalog.count(*)
                         FROM pg_catalog.generate_series(0, q.segments - 1) n
                         JOIN pg_catalog.pg_class s
                             ON s.relnamespace = 'baton_data'::regnamespace AND s.relname = pg_catalog.format('q%s_%s', q.id, n)::name
                         JOIN pg_catalog.pg_index i ON i.indrelid = s.oid AND i.indisvalid
                         JOIN pg_catalog.pg_class m ON m.oid = i.indexrelid
                         JOIN pg_catalog.pg_am a ON a.oid = m.relam AND a.amname = 'baton_lease'
                         WHERE s.relowner = v.relowner) AS sound,
       q.retention, q.replay_window, q.expired, q.expiry_ends_lease, q.start_within, q.notify, q.held, q.rotation_held_until
FROM baton_internal.queue q
JOIN pg_catalog.pg_class v ON v.relname = q.name::name AND v.relnamespace = 'baton_queue'::regnamespace
WHERE pg_catalog.has_any_column_privilege(v.oid, 'SELECT')
   OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE OR REPLACE FUNCTION baton.describe_queue(queue text) RETURNS TABLE (option text, value text, meaning text)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 20
BEGIN ATOMIC
    SELECT o.option, o.value, o.meaning
    FROM baton_internal.require_look(queue) r (id)
    CROSS JOIN LATERAL (SELECT v.* FROM baton_internal.visible_queue v WHERE v.id = r.id OFFSET 0) q
    CROSS JOIN LATERAL (VALUES
        (1, 'lease', q.lease::text, 'lease of a claim that asks for none'),
        (2, 'min_lease', q.min_lease::text, 'shortest lease that may be asked for'),
        (3, 'max_lease', q.max_lease::text, 'longest lease that may be asked for at once'),
        (4, 'max_lifetime', q.max_lifetime::text, 'longest time a claim can be kept by extending it'),
        (5, 'max_attempts', q.max_attempts::text, 'the failure that quarantines a message'),
        (6, 'claim_ceiling', q.claim_ceiling::text, 'claims of a message, failed or not, until it is quarantined'),
        (7, 'backoff', q.backoff::text, 'wait after the first failure; doubles with each further one'),
        (8, 'max_backoff', q.max_backoff::text, 'longest wait after a failure'),
        (9, 'max_delay', q.max_delay::text, 'furthest due time of an enqueue or a release'),
        (10, 'max_payload_bytes', q.max_payload_bytes::text, 'largest payload'),
        (11, 'max_headers_bytes', q.max_headers_bytes::text, 'largest headers'),
        (12, 'durability', q.durability, 'local, replicated, async or volatile'),
        (13, 'claim_flush', q.claim_flush::text, 'a claim is on disk before it is returned'),
        (14, 'segments', q.segments::text, 'work tables in the ring; fixed'),
        (15, 'segment_bytes', q.segment_bytes::text, 'size at which enqueues move on to the next segment'),
        (16, 'replicable', q.replicable::text, 'segments have a primary key; fixed'),
        (17, 'retention', q.retention::text, 'how long an acknowledged message is kept; 0: not'),
        (18, 'replay_window', q.replay_window::text, 'how long a retained message can be replayed at least'),
        (19, 'expired', q.expired, 'drop or keep (in quarantine) a message whose expiry has passed'),
        (20, 'expiry_ends_lease', q.expiry_ends_lease::text, 'a lease does not run beyond the message''s expiry'),
        (21, 'start_within', q.start_within::text, 'a claim not started by then may be taken away; 0: no limit'),
        (22, 'notify', q.notify::text, 'a worker sends NOTIFY when there is work, at most every 50 ms'),
        (23, 'paused', q.paused::text, 'no message is handed out'),
        (24, 'held', COALESCE(q.held, 'no'), 'why nothing that is retained may go (hold)'),
        (25, 'rotation_held_until', COALESCE(q.rotation_held_until::text, 'no'), 'no segment is truncated before (hold_rotation)'),
        (26, 'at_home', q.at_home::text, 'false: a copy that hands out nothing until baton.adopt'),
        (27, 'id', q.id::text, 'segments are baton_data.q<id>_<n>')
    ) o (ord, option, value, meaning)
    ORDER BY o.ord;
END;

-- Who took work away, destroyed or overruled something. Rows are only added, by the verbs themselves.
CREATE TABLE baton_data.audit (
    at        timestamptz NOT NULL,
    actor     text        NOT NULL,  -- session user
    acting_as text        NOT NULL,  -- current role: the definer's inside its function
    action    text        NOT NULL,  -- the verb
    queue_id  integer,
    queue     text,
    affected  bigint,
    reason    text,
    details   jsonb
);
CREATE INDEX audit_queue_idx ON baton_data.audit (queue_id, at);
COMMENT ON TABLE baton_data.audit IS 'who took work away, destroyed or overruled something; only added to';
CREATE FUNCTION baton_internal.refuse_change() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_refuse_change' LANGUAGE C;
REVOKE ALL ON FUNCTION baton_internal.refuse_change() FROM PUBLIC;
CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON baton_data.audit
    FOR EACH STATEMENT EXECUTE FUNCTION baton_internal.refuse_change();
ALTER TABLE baton_data.audit ENABLE ALWAYS TRIGGER refuse_change;
SELECT pg_catalog.pg_extension_config_dump('baton_data.audit', '');

CREATE VIEW baton.audit WITH (security_barrier) AS
SELECT a.at, a.actor, a.acting_as, a.action, a.queue, a.affected, a.reason, a.details
FROM baton_data.audit a
WHERE pg_catalog.pg_has_role('pg_monitor', 'USAGE')
   OR a.queue_id IN (SELECT q.id FROM baton_internal.visible_queue q);
COMMENT ON VIEW baton.audit IS 'who took work away, destroyed or overruled something, of queues you may look at; members of pg_monitor see all of it';
COMMENT ON COLUMN baton.audit.actor IS 'session user';
COMMENT ON COLUMN baton.audit.acting_as IS 'role whose privileges were used';
GRANT SELECT ON baton.audit TO PUBLIC;

-- The text of sql/60_help.sql.
CREATE OR REPLACE FUNCTION baton.help(topic text DEFAULT NULL) RETURNS SETOF text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE ROWS 30
    SET search_path = pg_catalog, pg_temp
AS $help$
DECLARE
    page text;
BEGIN
    page := CASE lower(coalesce(topic, ''))
    WHEN '' THEN $$
pg_baton: a work queue with leases and fenced acknowledgement.

  SELECT baton.create_queue('orders');
  SELECT * FROM baton.enqueue('orders', '{"order": 1}');           -- in your own transaction
  SELECT * FROM baton.claim('orders', worker => 'w1', max_items => 10, lease => '1 min');
  SELECT baton.ack('<token>');                                     -- in the transaction of its effect

Topics: SELECT * FROM baton.help('enqueue');
  enqueue      putting work in: single, batches, INSERT, COPY, outbox trigger
  claim        taking work under lease, waiting for it
  settle       ack, release, quarantine, hand_back, extend, start
  admin        making, changing, pausing, moving and dropping queues
  views        looking: queues, queue_stats, in_flight, segments, health, explain_message
  privileges   what each grant allows
  outcomes     what the verbs answer, with SQLSTATEs (or SELECT * FROM baton.outcomes())
  settings     pg_baton.* in postgresql.conf
$$
    WHEN 'enqueue' THEN $$
Joins your transaction: commit makes the work visible, rollback makes it never have been.

  SELECT * FROM baton.enqueue('orders', '{"order": 1}');
  SELECT * FROM baton.enqueue('orders', '{"order": 2}', routing_key => 'c-7', delay => '10 min');
  SELECT * FROM baton.enqueue_bytes('orders', '\x00ff');
  SELECT * FROM baton.enqueue_batch('orders', ARRAY['{"order": 3}', '{"order": 4}']::jsonb[]);
  INSERT INTO baton_queue.orders (payload) SELECT to_jsonb(o) FROM old_orders o;
  COPY baton_queue.orders (payload) FROM STDIN;

Work from a business table, once per statement:
  CREATE TRIGGER orders_outbox AFTER INSERT ON orders REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('orders');

delay or not_before: not handed out before. expires_at: not handed out after.
$$
    WHEN 'claim' THEN $$
Acts at once: a claim is not undone by your rollback; it then counts as a failure.

  SELECT * FROM baton.claim('orders', worker => 'w1', max_items => 10, lease => '1 min');
  SELECT * FROM baton.take('orders');      -- claim and settle: commit = done, rollback = back
  CALL baton.wait('orders');               -- sleep until there is something; holds no snapshot
  CALL baton.wait_any(ARRAY['orders', 'mail']);
  SELECT baton.why_empty('orders');

Use claim and take in FROM, and without LIMIT: max_items is the limit.
$$
    WHEN 'settle' THEN $$
Join your transaction: ack, release, quarantine, settle. Act at once: start, extend, hand_back.

  SELECT baton.ack('<token>');
  SELECT baton.ack_batch(ARRAY['<token>', '<token>']);
  SELECT * FROM baton.release('<token>', reason => 'rate limited', delay => '30 s');
  SELECT * FROM baton.release('<token>', failed => false, delay => '0 s');
  SELECT baton.quarantine('<token>', 'unknown currency');
  SELECT * FROM baton.hand_back(ARRAY['<token>']);                 -- not started, counts no failure
  SELECT baton.start('<token>');
  SELECT baton.extend('<token>', '5 min');                         -- deadline = now + 5 min
  SELECT * FROM baton.settle(ARRAY['<token>', '<token>'], ARRAY['ack', 'release']);
  SELECT * FROM baton.settle_and_claim('orders', ARRAY['<token>'], worker => 'w1');

ack, release, quarantine, extend and start raise when the token is fenced, so that the transaction
with the effect rolls back; settle, extend_batch and hand_back answer with one outcome per token.
$$
    WHEN 'admin' THEN $$
  SELECT baton.create_queue('orders', lease => '1 min', max_attempts => 5);
  SELECT baton.alter_queue('orders', backoff => '5 s');
  SELECT * FROM baton.describe_queue('orders');                    -- every option
  SELECT baton.pause('orders');     SELECT baton.resume('orders');
  SELECT baton.fence('orders');                                    -- kill every token at once
  SELECT baton.adopt('orders');                                    -- this copy is meant to work
  SELECT baton.activate('orders');                                 -- replicated work is ready
  SELECT baton.drop_queue('orders');                               -- refuses while work is in it
  SELECT * FROM baton.check('orders');                             -- no row: sound

create_queue needs CREATE on schema baton_queue; the others, ownership of the queue's view.
$$
    WHEN 'views' THEN $$
  TABLE baton.queues;            what there is and whether it works
  TABLE baton.queue_stats;       messages by state, exact (reads the maps)
  TABLE baton.queue_counters;    what happened since server start
  TABLE baton.in_flight;         who holds what, for how long, started or not
  TABLE baton.segments;          the ring of work tables of each queue
  TABLE baton.health;            what an operator should know
  TABLE baton.audit;             who took work away, destroyed or overruled something
  TABLE baton_queue.orders;      the unsettled messages of a queue
  SELECT * FROM baton.explain_message('orders', 42);               -- why does it not run
  SELECT * FROM baton.quarantined('orders');
  SELECT * FROM baton.evidence('orders', 42);                      -- what failed attempts said
  SELECT baton.backlog('orders');                                  -- for autoscalers
$$
    WHEN 'privileges' THEN $$
A queue's privileges are those of its view:

  GRANT INSERT ON baton_queue.orders TO shop;                      -- may enqueue
  GRANT UPDATE ON baton_queue.orders TO worker;                    -- may claim, take, settle
  GRANT SELECT ON baton_queue.orders TO support;                   -- may look
  GRANT SELECT (id, state, worker, lease_until) ON baton_queue.orders TO oncall;     -- no payloads
  GRANT DELETE ON baton_queue.orders TO chief;                     -- may purge and redrive
  GRANT CREATE ON SCHEMA baton_queue TO shop;                      -- may make queues

Settling takes the token as well. The owner of the view may alter and drop the queue.
pg_monitor may read every view, without payloads.
$$
    WHEN 'settings' THEN $$
  pg_baton.enabled = on               kill switch for every verb and worker (reload)
  pg_baton.claims = on                off: claims come back empty (reload)
  pg_baton.settle_timeout = 5s        longest wait of a settlement for another of its message
  pg_baton.wait_recheck = 1s          a waiting session looks for itself at least this often

All of them: SELECT name, setting, unit, short_desc FROM pg_settings WHERE name LIKE 'pg_baton.%';
$$
    END;
    IF lower(topic) = 'outcomes' THEN
        RETURN QUERY SELECT format('%-18s %s  %s', o.outcome, o.sqlstate, o.meaning) FROM baton.outcomes() o;
    ELSIF page IS NULL THEN
        RAISE EXCEPTION 'no help on "%"', topic
            USING ERRCODE = '22023', HINT = 'SELECT * FROM baton.help() lists the topics.';
    ELSE
        RETURN QUERY SELECT regexp_split_to_table(trim(both E'\n' from page), E'\n');
    END IF;
END
$help$;

ALTER TABLE baton_internal.worker_name ADD COLUMN seen timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp();

-- What the workers are, besides what they last did; health by step; and who keeps rows.
DROP VIEW baton.health;
DROP FUNCTION baton_internal.worker_status();
CREATE FUNCTION baton_internal.worker_status()
    RETURNS TABLE (database oid, worker text, pid integer, step text, last_success timestamptz, last_error timestamptz, error text, runs bigint,
                   state text, since timestamptz)
    AS 'MODULE_PATHNAME', 'baton_worker_status' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
REVOKE ALL ON FUNCTION baton_internal.worker_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.worker_status() TO PUBLIC;
CREATE VIEW baton.horizon AS
SELECT h.kind, h.who, h.pid, h.held::interval(0) AS held, h.transactions, h.remedy
FROM (SELECT 'session' AS kind,
             pg_catalog.concat_ws(', ', COALESCE(a.usename, a.backend_type), NULLIF(a.application_name, ''), a.state) AS who,
             a.pid, pg_catalog.clock_timestamp() - a.xact_start AS held,
             GREATEST(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid))::bigint AS transactions,
             pg_catalog.format('SELECT pg_terminate_backend(%s)', a.pid) AS remedy
      FROM pg_catalog.pg_stat_activity a
      WHERE a.datname = pg_catalog.current_database()
        AND a.pid <> pg_catalog.pg_backend_pid()
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND a.backend_type <> 'walsender'
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = a.pid)
      UNION ALL
      SELECT 'prepared transaction', p.gid, NULL, pg_catalog.clock_timestamp() - p.prepared, pg_catalog.age(p.transaction),
             pg_catalog.format('ROLLBACK PREPARED %L', p.gid)
      FROM pg_catalog.pg_prepared_xacts p
      WHERE p.database = pg_catalog.current_database()
      UNION ALL
      SELECT 'standby', pg_catalog.concat_ws(', ', NULLIF(a.application_name, ''), a.client_addr), a.pid, NULL, pg_catalog.age(a.backend_xmin),
             'end what runs long on that standby, or set hot_standby_feedback = off there'
      FROM pg_catalog.pg_stat_activity a
      WHERE a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL
      UNION ALL
      SELECT 'replication slot', pg_catalog.concat_ws(', ', s.slot_name, CASE WHEN NOT s.active THEN 'nobody connected' END), s.active_pid, NULL,
             pg_catalog.age(s.xmin),
             CASE WHEN s.active THEN 'end what runs long on that standby, or set hot_standby_feedback = off there'
                  ELSE pg_catalog.format('if nobody comes back for it: SELECT pg_drop_replication_slot(%L)', s.slot_name)
             END
      FROM pg_catalog.pg_replication_slots s
      WHERE s.xmin IS NOT NULL
      UNION ALL
      SELECT 'replication slot (catalogs)', pg_catalog.concat_ws(', ', s.slot_name, CASE WHEN NOT s.active THEN 'nobody connected' END), s.active_pid,
             NULL, pg_catalog.age(s.catalog_xmin),
             CASE WHEN s.active THEN 'see why its subscriber is late'
                  ELSE pg_catalog.format('if nobody comes back for it: SELECT pg_drop_replication_slot(%L)', s.slot_name)
             END
      FROM pg_catalog.pg_replication_slots s
      WHERE s.catalog_xmin IS NOT NULL) h
ORDER BY h.transactions DESC, h.held DESC NULLS LAST;
COMMENT ON VIEW baton.horizon IS 'what keeps rows of this database from being reclaimed, oldest first, and what ends it';
COMMENT ON COLUMN baton.horizon.held IS 'how long already; NULL: PostgreSQL does not know';
COMMENT ON COLUMN baton.horizon.transactions IS 'transactions that were begun since, in the whole server';

CREATE VIEW baton.health AS
WITH status AS (
    SELECT w.worker, w.database, w.pid, w.state, w.since, w.step, w.last_success, w.last_error, w.error,
           w.last_error > COALESCE(w.last_success, '-infinity') AS failing
    FROM baton_internal.worker_status() w
), worker AS (
    -- how much later than its longest sleep a worker may be
    SELECT k.name, pg_catalog.max(s.pid) AS pid, pg_catalog.max(s.state) AS state,
           (pg_catalog.clock_timestamp() - COALESCE(pg_catalog.max(s.last_success), pg_catalog.max(s.since)))::interval(0) AS age,
           k.sleep
    FROM (VALUES ('mover', pg_catalog.current_setting('pg_baton.mover_naptime', true)::interval),
                 ('retention', pg_catalog.current_setting('pg_baton.retention_naptime', true)::interval)) k (name, sleep)
    LEFT JOIN status s ON s.worker = k.name AND s.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
    GROUP BY k.name, k.sleep
), launcher AS (
    SELECT pg_catalog.max(s.pid) AS pid, pg_catalog.max(s.last_success) FILTER (WHERE s.step = 'databases') AS looked_at,
           pg_catalog.max(s.error) FILTER (WHERE s.failing) AS error
    FROM status s
    WHERE s.worker = 'launcher'
), version AS (
    SELECT e.extversion AS installed, baton_internal.library_version() AS library
    FROM pg_catalog.pg_extension e
    WHERE e.extname = 'pg_baton'
), pin AS (
    -- Time tells of those that PostgreSQL knows it of; of the others, whether nobody is there to let go, or how far behind they are.
    SELECT h.kind, h.who, h.pid, h.held, h.transactions,
           COALESCE(h.held > '5 min', h.pid IS NULL OR h.transactions > 100000) AS long,
           pg_catalog.row_number() OVER (ORDER BY COALESCE(h.held > '5 min', h.pid IS NULL OR h.transactions > 100000) DESC, h.transactions DESC) AS n
    FROM baton.horizon h
), prepared AS (
    SELECT p.gid, pg_catalog.clock_timestamp() - p.prepared AS age
    FROM pg_catalog.pg_prepared_xacts p
    WHERE p.database = pg_catalog.current_database()
    ORDER BY p.prepared
    LIMIT 1
), ring AS (
    SELECT s.name, pg_catalog.sum(pg_catalog.pg_total_relation_size(s.heap)) AS bytes,
           pg_catalog.sum(s.segment_bytes) AS budget, pg_catalog.max(pg_catalog.age(c.relfrozenxid)) AS frozen_age
    FROM baton_internal.visible_segment s
    JOIN pg_catalog.pg_class c ON c.oid = s.heap
    GROUP BY s.name
), published AS (
    SELECT DISTINCT q.name
    FROM baton_internal.visible_queue q
    JOIN pg_catalog.pg_publication_tables t ON t.schemaname = 'baton_data' AND t.tablename LIKE pg_catalog.format('q%s\_%%', q.id)
    JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname AND p.pubdelete
    WHERE NOT q.replicable
)
SELECT 'version' AS item,
       CASE WHEN installed = library THEN 'ok' ELSE 'warning' END AS state,
       CASE WHEN installed = library THEN installed
            ELSE pg_catalog.format('extension %s, library %s: run ALTER EXTENSION pg_baton UPDATE', installed, library)
       END AS detail
FROM version
UNION ALL
SELECT 'switches',
       CASE WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on' THEN 'error'
            WHEN pg_catalog.current_setting('pg_baton.claims', true) IS DISTINCT FROM 'on' THEN 'warning'
            ELSE 'ok'
       END,
       pg_catalog.format('pg_baton.enabled = %s, pg_baton.claims = %s', pg_catalog.current_setting('pg_baton.enabled', true),
                         pg_catalog.current_setting('pg_baton.claims', true))
UNION ALL
SELECT 'launcher',
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'ok'
            WHEN pg_catalog.current_setting('pg_baton.workers', true) IS DISTINCT FROM 'on' THEN 'warning'
            WHEN l.pid IS NULL THEN 'error'
            WHEN l.error IS NOT NULL THEN 'warning'
            ELSE 'ok'
       END,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'starts when this standby is promoted'
            WHEN pg_catalog.current_setting('pg_baton.workers', true) IS DISTINCT FROM 'on'
            THEN 'pg_baton.workers is off: CALL baton.maintain() every few seconds, or work that falls due waits for a claim and segments grow'
            WHEN l.pid IS NULL THEN 'no process; it comes back within 5 s, or the server''s log says why not'
            ELSE COALESCE(l.error, pg_catalog.format('pid %s, looked at the databases %s ago', l.pid,
                                                     (pg_catalog.clock_timestamp() - l.looked_at)::interval(0)))
       END
FROM launcher l
UNION ALL
SELECT w.name,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'ok'
            WHEN w.pid IS NULL THEN 'warning'
            WHEN w.state = 'standing by' THEN 'error'
            WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on' THEN 'ok'
            WHEN w.age > 10 * w.sleep + interval '1 min' THEN 'error'
            WHEN w.age > 3 * w.sleep + interval '10 s' THEN 'warning'
            ELSE 'ok'
       END,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'starts when this standby is promoted'
            WHEN w.pid IS NULL
            THEN CASE w.name WHEN 'mover' THEN 'no process: claims find what is due themselves, later'
                             ELSE 'no process: the mover does its work; without both, segments grow'
                 END || '. See launcher, and the server''s log; by hand: CALL baton.maintain()'
            WHEN w.state = 'standing by' THEN pg_catalog.format('pid %s stands by, the SQL of this database is newer than the library: restart the server', w.pid)
            WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on'
            THEN pg_catalog.format('pid %s stands still, pg_baton.enabled is off', w.pid)
            WHEN w.age > 3 * w.sleep + interval '10 s'
            THEN pg_catalog.format('late: last step %s ago. What it does and waits for: SELECT * FROM pg_stat_activity WHERE pid = %s; pg_terminate_backend(%s) starts it anew',
                                   w.age, w.pid, w.pid)
            ELSE pg_catalog.format('pid %s, last step %s ago', w.pid, w.age)
       END
FROM worker w
UNION ALL
SELECT pg_catalog.format('%s: %s', s.worker, s.step),
       CASE WHEN s.failing THEN 'error' ELSE 'ok' END,
       pg_catalog.concat_ws('; ',
           CASE WHEN s.failing THEN pg_catalog.format('failed %s ago: %s', (pg_catalog.clock_timestamp() - s.last_error)::interval(0), s.error) END,
           CASE WHEN s.last_success IS NULL THEN 'never done' ELSE pg_catalog.format('done %s ago', (pg_catalog.clock_timestamp() - s.last_success)::interval(0)) END,
           CASE WHEN NOT s.failing THEN pg_catalog.format('last failed %s ago: %s', (pg_catalog.clock_timestamp() - s.last_error)::interval(0), s.error) END)
FROM status s
JOIN pg_catalog.pg_database d ON d.oid = s.database AND d.datname = pg_catalog.current_database()
WHERE s.step IS NOT NULL
UNION ALL
SELECT 'queues',
       CASE WHEN pg_catalog.bool_or(NOT q.sound) THEN 'error'
            WHEN pg_catalog.bool_or(NOT q.at_home OR q.paused) THEN 'warning'
            ELSE 'ok'
       END,
       pg_catalog.concat_ws('; ', pg_catalog.format('%s you may look at', pg_catalog.count(*)),
                 'damaged: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE NOT q.sound),
                 'restored, need baton.adopt: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE NOT q.at_home),
                 'paused: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE q.paused))
FROM baton_internal.visible_queue q
UNION ALL
SELECT 'views',
       'error',
       pg_catalog.format('no view baton_queue.%I: nobody can use the queue (dropped or renamed)', q.name)
FROM baton_internal.queue q
WHERE pg_catalog.pg_has_role('pg_monitor', 'USAGE')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_class v WHERE v.relname = q.name::name AND v.relnamespace = 'baton_queue'::regnamespace)
UNION ALL
SELECT 'horizon',
       CASE WHEN pg_catalog.bool_or(p.long) THEN 'warning' ELSE 'ok' END,
       CASE WHEN pg_catalog.bool_or(p.long)
            THEN pg_catalog.format('segments wait to be reclaimed for %s%s. What ends it: TABLE baton.horizon',
                                   pg_catalog.string_agg(pg_catalog.format('%s %s (%s)', p.kind, COALESCE('pid ' || CASE WHEN p.kind = 'session' THEN p.pid END, p.who),
                                                                           COALESCE(p.held::text, pg_catalog.format('%s transactions', p.transactions))), ', ' ORDER BY p.n)
                                       FILTER (WHERE p.long AND p.n <= 3),
                                   ' and ' || NULLIF(GREATEST(pg_catalog.count(*) FILTER (WHERE p.long) - 3, 0), 0) || ' more')
            ELSE pg_catalog.format('nothing holds rows back for long; oldest transaction: %s', COALESCE(pg_catalog.max(p.held)::text, 'none'))
       END
FROM pin p
UNION ALL
SELECT 'prepared transactions',
       CASE WHEN p.age > '5 min' THEN 'warning' ELSE 'ok' END,
       CASE WHEN p.gid IS NULL THEN 'none'
            ELSE pg_catalog.format('%s, prepared %s ago: what it enqueued or settled waits for it', p.gid, p.age::interval(0))
       END
FROM (VALUES (1)) one
LEFT JOIN prepared p ON true
UNION ALL
SELECT 'space',
       CASE WHEN pg_catalog.bool_or(r.bytes > 2 * r.budget) THEN 'warning' ELSE 'ok' END,
       COALESCE('above twice its budget: ' || pg_catalog.string_agg(pg_catalog.format('%s (%s)', r.name, pg_catalog.pg_size_pretty(r.bytes)), ', '
                                                                     ORDER BY r.bytes DESC) FILTER (WHERE r.bytes > 2 * r.budget),
                pg_catalog.format('%s in all queues', pg_catalog.pg_size_pretty(COALESCE(pg_catalog.sum(r.bytes), 0))))
FROM ring r
UNION ALL
SELECT 'transaction ids',
       CASE WHEN pg_catalog.max(r.frozen_age) > 0.95 * pg_catalog.current_setting('autovacuum_freeze_max_age')::bigint THEN 'warning' ELSE 'ok' END,
       pg_catalog.format('oldest segment: %s transactions of %s', COALESCE(pg_catalog.max(r.frozen_age), 0),
                         pg_catalog.current_setting('autovacuum_freeze_max_age'))
FROM ring r
UNION ALL
SELECT 'publication',
       'error',
       pg_catalog.format('published for deletes without replica identity, so settling is refused: %s',
                         pg_catalog.string_agg(p.name, ', ' ORDER BY p.name))
FROM published p
HAVING pg_catalog.count(*) > 0;
COMMENT ON VIEW baton.health IS 'what an operator should know: one line per subject, state ok, warning or error';
GRANT SELECT ON baton.horizon, baton.health TO PUBLIC;

-- Tables of all queues, of the same kind as segments. later_<n>: due-time buckets, messages that are due later than
-- pg_baton.soon (three levels of six tables; C++: core/wheel.hpp). long_<n>: claims that would hold back the rotation of
-- their segment. Autovacuum is off as for segments: they are truncated when they are empty.
CREATE FUNCTION baton_internal.make_shared_table(name text) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('CREATE TABLE baton_data.%1$I OF baton.message (CONSTRAINT %2$I PRIMARY KEY (queue_id, id)) USING heap'
                   ' WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false, vacuum_truncate = false,'
                   ' toast.vacuum_truncate = false, toast_tuple_target = 8160)', name, name || '_pkey');
    EXECUTE format('ALTER TABLE baton_data.%I ALTER COLUMN payload SET STORAGE MAIN, ALTER COLUMN payload_bytes SET STORAGE MAIN', name);
    EXECUTE format('CREATE INDEX %2$I ON baton_data.%1$I USING baton_lease'
                   ' (id, lane, generation, failures, not_before, queue_id, expires_at)', name, name || '_map');
    EXECUTE format('CREATE TRIGGER refuse_update BEFORE UPDATE ON baton_data.%I FOR EACH ROW'
                   ' EXECUTE FUNCTION baton_internal.refuse_update()', name);
    PERFORM pg_extension_config_dump(format('baton_data.%I', name), '');
END;
$$;
SELECT baton_internal.make_shared_table('later_' || n) FROM pg_catalog.generate_series(0, 17) n;
SELECT baton_internal.make_shared_table('long_' || n) FROM pg_catalog.generate_series(0, 1) n;
COMMENT ON TABLE baton_data.later_0 IS 'messages of all queues that are due later, by due time';
COMMENT ON TABLE baton_data.long_0 IS 'long claims of all queues';
