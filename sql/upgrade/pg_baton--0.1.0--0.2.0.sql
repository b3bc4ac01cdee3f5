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
