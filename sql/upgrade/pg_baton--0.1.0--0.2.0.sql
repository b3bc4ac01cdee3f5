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
