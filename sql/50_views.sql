-- Views. Everybody may read them; each shows only the queues whose view (baton_queue.<name>) the reader may look at:
-- SELECT on it or on any of its columns, or membership in pg_monitor, which never shows a payload.
-- They are made to be read in psql at 100 columns.

-- Counts of one map, and the age of the first message in line. Reads every page of the map; changes nothing.
CREATE FUNCTION baton_internal.map_counts(
    segment regclass, OUT ready bigint, OUT lapsed bigint, OUT scheduled bigint, OUT claimed bigint, OUT settling bigint,
    OUT uncommitted bigint, OUT inactive bigint, OUT settled bigint, OUT oldest_ready timestamptz, OUT expired bigint,
    OUT not_started bigint)
    AS 'MODULE_PATHNAME', 'baton_map_counts' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
-- The claims of one map.
CREATE FUNCTION baton_internal.map_claims(segment regclass)
    RETURNS TABLE (id bigint, state text, worker text, claimed_at timestamptz, started_at timestamptz, lease_until timestamptz,
                   generation bigint, failures integer, settling_xid xid, session_bound boolean)
    AS 'MODULE_PATHNAME', 'baton_map_held' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 100;
-- The id of a queue that the caller may look at; 42704 and 42501 otherwise.
CREATE FUNCTION baton_internal.require_look(queue text) RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_require_look' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
CREATE FUNCTION baton_internal.at_home(system bigint, database oid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'baton_at_home' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION baton_internal.library_version() RETURNS text
    AS 'MODULE_PATHNAME', 'baton_library_version' LANGUAGE C IMMUTABLE PARALLEL SAFE;

-- State of a message as its queue's view shows it; NULL hides the row (its settlement has committed since).
CREATE FUNCTION baton_internal.message_state(resolved text, due timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE resolved
               WHEN 'gone' THEN NULL
               WHEN 'lapsed' THEN 'ready'
               WHEN 'uncommitted' THEN CASE WHEN due > pg_catalog.statement_timestamp() THEN 'scheduled' ELSE 'ready' END
               ELSE resolved
           END;
CREATE FUNCTION baton_internal.is_unsettled(resolved text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN resolved <> 'gone';

-- A queue's messages in shared tables: in due-time buckets (scheduled until they are moved to the queue), in long segments
-- (claimed). They run as their owner: the tables hold other queues' messages as well. EXECUTE is granted to all, since the
-- functions of a view run with the rights of its reader; nobody can name them, since the schema is closed. STABLE: they look
-- with the snapshot of the query that calls them, so that a message that is moved meanwhile is not seen at both places.
CREATE FUNCTION baton_internal.shared_messages(queue_id integer)
    RETURNS TABLE (id bigint, state text, message_id text, routing_key text, message_class text, priority integer, enqueued_at timestamptz,
                   not_before timestamptz, expires_at timestamptz, generation bigint, failures integer, worker text, lease_until timestamptz,
                   headers jsonb, payload_ref text, payload jsonb, payload_bytes bytea)
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL UNSAFE ROWS 100
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT m.id, 'scheduled', m.message_id, m.routing_key, m.message_class, COALESCE(m.priority, 5), m.enqueued_at, m.not_before, m.expires_at,
           COALESCE(m.generation, 0)::bigint, COALESCE(m.failures, 0), NULL::text, NULL::timestamptz, m.headers, m.payload_ref, m.payload, m.payload_bytes
    FROM baton_internal.later_message m
    WHERE m.queue_id = shared_messages.queue_id
    UNION ALL
    SELECT m.id, baton_internal.message_state(s.resolved, s.due), m.message_id, m.routing_key, m.message_class, COALESCE(m.priority, 5), m.enqueued_at, s.due,
           m.expires_at, s.generation, s.failures, CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.worker END,
           CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.deadline END, m.headers, m.payload_ref, m.payload, m.payload_bytes
    FROM baton_data.long_0 m
    JOIN baton_internal.map_slots('baton_data.long_0'::regclass) s ON s.tid = m.ctid
    WHERE m.queue_id = shared_messages.queue_id AND baton_internal.message_state(s.resolved, s.due) IS NOT NULL
    UNION ALL
    SELECT m.id, baton_internal.message_state(s.resolved, s.due), m.message_id, m.routing_key, m.message_class, COALESCE(m.priority, 5), m.enqueued_at, s.due,
           m.expires_at, s.generation, s.failures, CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.worker END,
           CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.deadline END, m.headers, m.payload_ref, m.payload, m.payload_bytes
    FROM baton_data.long_1 m
    JOIN baton_internal.map_slots('baton_data.long_1'::regclass) s ON s.tid = m.ctid
    WHERE m.queue_id = shared_messages.queue_id AND baton_internal.message_state(s.resolved, s.due) IS NOT NULL;
END;
CREATE FUNCTION baton_internal.shared_counts(
    queue_id integer, OUT ready bigint, OUT scheduled bigint, OUT claimed bigint, OUT settling bigint, OUT not_started bigint)
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT pg_catalog.count(*) FILTER (WHERE c.resolved = 'lapsed' OR c.resolved = 'ready'),
           pg_catalog.count(*) FILTER (WHERE c.resolved = 'scheduled'),
           pg_catalog.count(*) FILTER (WHERE c.resolved = 'claimed'),
           pg_catalog.count(*) FILTER (WHERE c.resolved = 'settling'),
           pg_catalog.count(*) FILTER (WHERE c.resolved = 'claimed' AND c.started_at IS NULL)
    FROM (SELECT 'scheduled' AS resolved, NULL::timestamptz AS started_at FROM baton_internal.later_message m WHERE m.queue_id = shared_counts.queue_id
          UNION ALL
          SELECT s.resolved, s.started_at FROM baton_data.long_0 m JOIN baton_internal.map_slots('baton_data.long_0'::regclass) s ON s.tid = m.ctid
          WHERE m.queue_id = shared_counts.queue_id
          UNION ALL
          SELECT s.resolved, s.started_at FROM baton_data.long_1 m JOIN baton_internal.map_slots('baton_data.long_1'::regclass) s ON s.tid = m.ctid
          WHERE m.queue_id = shared_counts.queue_id) c;
END;

-- Claims in the long segments, of all queues.
CREATE FUNCTION baton_internal.long_held()
    RETURNS TABLE (queue_id integer, id bigint, state text, worker text, claimed_at timestamptz, started_at timestamptz, lease_until timestamptz,
                   generation bigint, failures integer, settling_xid xid, session_bound boolean)
    AS 'MODULE_PATHNAME', 'baton_long_held' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

-- Queues that the reader may look at. sound: its view and all its relations are there and have one owner; views touch
-- the maps of sound queues only, so that one damaged queue does not hide the others.
CREATE VIEW baton_internal.visible_queue WITH (security_barrier) AS
SELECT q.id, q.name, q.durability, q.claim_flush, q.replicable, q.segments, q.segment_bytes, q.lease, q.min_lease, q.max_lease,
       q.max_lifetime, q.max_attempts, q.claim_ceiling, q.backoff, q.max_backoff, q.max_delay, q.max_payload_bytes,
       q.max_headers_bytes, q.paused, q.created_at, q.incarnation,
       baton_internal.at_home(q.home_system, q.home_database) AS at_home,
       v.oid AS view_oid, v.relowner AS owner,
       v.relkind = 'v'
       AND EXISTS (SELECT FROM pg_catalog.pg_class s
                   WHERE s.relnamespace = 'baton_data'::regnamespace AND s.relname = pg_catalog.format('q%s_id', q.id)::name)
       -- OFFSET 0 here and below: one look-up by name for each segment, where the planner would read all of pg_class for each queue
       AND q.segments = (SELECT pg_catalog.count(*)
                         FROM pg_catalog.generate_series(0, q.segments - 1) n
                         CROSS JOIN LATERAL (
                             SELECT s.relowner
                             FROM pg_catalog.pg_class s
                             JOIN pg_catalog.pg_index i ON i.indrelid = s.oid AND i.indisvalid
                             JOIN pg_catalog.pg_class m ON m.oid = i.indexrelid
                             JOIN pg_catalog.pg_am a ON a.oid = m.relam AND a.amname = 'baton_lease'
                             WHERE s.relnamespace = 'baton_data'::regnamespace AND s.relname = pg_catalog.format('q%s_%s', q.id, n)::name
                             OFFSET 0) s
                         WHERE s.relowner = v.relowner) AS sound,
       q.retention, q.replay_window, q.expired, q.expiry_ends_lease, q.start_within, q.notify, q.held, q.rotation_held_until
FROM baton_internal.queue q
JOIN pg_catalog.pg_class v ON v.relname = q.name::name AND v.relnamespace = 'baton_queue'::regnamespace
WHERE pg_catalog.has_any_column_privilege(v.oid, 'SELECT')
   OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

-- A standby has no files of unlogged tables: a volatile queue's segments are left out there.
CREATE VIEW baton_internal.visible_segment WITH (security_barrier) AS
SELECT q.id AS queue_id, q.name, q.segment_bytes, s.segment, s.oid::regclass AS heap
FROM baton_internal.visible_queue q
CROSS JOIN LATERAL (
    SELECT n AS segment, c.oid, c.relpersistence
    FROM pg_catalog.generate_series(0, q.segments - 1) n
    CROSS JOIN LATERAL (SELECT r.oid, r.relpersistence
                        FROM pg_catalog.pg_class r
                        WHERE r.relnamespace = 'baton_data'::regnamespace AND r.relname = pg_catalog.format('q%s_%s', q.id, n)::name
                        OFFSET 0) c) s
WHERE q.sound AND (s.relpersistence <> 'u' OR NOT pg_catalog.pg_is_in_recovery());

CREATE VIEW baton.queues AS
SELECT q.name,
       pg_catalog.pg_get_userbyid(q.owner) AS owner,
       CASE WHEN NOT q.sound THEN 'damaged'
            WHEN NOT q.at_home THEN 'restored'
            WHEN q.paused THEN 'paused'
            ELSE 'active'
       END AS state,
       q.durability, q.lease, q.max_attempts, q.segments,
       (SELECT pg_catalog.pg_size_pretty(pg_catalog.sum(pg_catalog.pg_total_relation_size(s.oid)))
        FROM pg_catalog.generate_series(0, q.segments - 1) n
        JOIN pg_catalog.pg_class s
            ON s.relnamespace = 'baton_data'::regnamespace AND s.relname = pg_catalog.format('q%s_%s', q.id, n)::name) AS size,
       q.created_at::timestamptz(0) AS created_at
FROM baton_internal.visible_queue q
ORDER BY q.name;
COMMENT ON VIEW baton.queues IS 'queues you may look at; all their options: baton.describe_queue(name)';
COMMENT ON COLUMN baton.queues.state IS 'active, paused, restored (a copy that waits for baton.adopt), damaged (see baton.health)';

CREATE VIEW baton.queue_stats AS
SELECT c.name AS queue, c.ready + t.ready AS ready, c.scheduled + t.scheduled AS scheduled, c.claimed + t.claimed AS claimed,
       c.settling + t.settling AS settling,
       (SELECT pg_catalog.count(*) FROM baton_data.quarantined d WHERE d.queue_id = c.queue_id) AS quarantined,
       (pg_catalog.clock_timestamp() - c.oldest_ready)::interval(0) AS oldest_ready,
       k.waiting, c.expired, c.not_started + t.not_started AS not_started
FROM (SELECT s.queue_id, s.name, pg_catalog.sum(m.ready)::bigint AS ready, pg_catalog.sum(m.scheduled)::bigint AS scheduled,
             pg_catalog.sum(m.claimed)::bigint AS claimed, pg_catalog.sum(m.settling)::bigint AS settling,
             pg_catalog.min(m.oldest_ready) AS oldest_ready, pg_catalog.sum(m.expired)::bigint AS expired,
             pg_catalog.sum(m.not_started)::bigint AS not_started
      FROM baton_internal.visible_segment s
      CROSS JOIN LATERAL baton_internal.map_counts(s.heap) m
      GROUP BY s.queue_id, s.name) c
CROSS JOIN LATERAL baton_internal.shared_counts(c.queue_id) t
LEFT JOIN LATERAL baton_internal.queue_counters(c.queue_id) k ON true
ORDER BY c.name;
COMMENT ON VIEW baton.queue_stats IS 'exact counts by state; reads every page of the maps (64 bytes a message)';
COMMENT ON COLUMN baton.queue_stats.ready IS 'to be claimed now, those whose lease has ended among them';
COMMENT ON COLUMN baton.queue_stats.oldest_ready IS 'time since the message with the lowest id that is ready was enqueued';
COMMENT ON COLUMN baton.queue_stats.waiting IS 'sessions in baton.wait';
COMMENT ON COLUMN baton.queue_stats.not_started IS 'of those claimed: not started, by baton.start';
COMMENT ON COLUMN baton.queue_stats.expired IS 'past their expiry and not removed yet; never handed out, not counted as ready';

CREATE VIEW baton.queue_counters AS
SELECT q.name AS queue, k.enqueued, k.claimed, k.acked, k.released, k.quarantined, k.expired_leases, k.fenced, k.expired
FROM baton_internal.visible_queue q
CROSS JOIN LATERAL baton_internal.queue_counters(q.id) k
ORDER BY q.name;
COMMENT ON VIEW baton.queue_counters IS 'what happened since the server was started; cheap, from shared memory';

CREATE VIEW baton_internal.visible_long_held WITH (security_barrier) AS
SELECT q.name, h.*
FROM baton_internal.long_held() h
JOIN baton_internal.visible_queue q ON q.id = h.queue_id;

CREATE VIEW baton.in_flight AS
SELECT s.name AS queue, h.id, h.state, h.worker,
       (pg_catalog.clock_timestamp() - h.claimed_at)::interval(0) AS held,
       (pg_catalog.clock_timestamp() - h.started_at)::interval(0) AS running,
       (h.lease_until - pg_catalog.clock_timestamp())::interval(0) AS lease_left,
       h.generation, h.failures,
       CASE WHEN h.started_at IS NULL THEN (pg_catalog.clock_timestamp() - h.claimed_at)::interval(0) END AS not_started,
       h.session_bound
FROM baton_internal.visible_segment s
CROSS JOIN LATERAL baton_internal.map_claims(s.heap) h
UNION ALL
SELECT h.name, h.id, h.state, h.worker,
       (pg_catalog.clock_timestamp() - h.claimed_at)::interval(0),
       (pg_catalog.clock_timestamp() - h.started_at)::interval(0),
       (h.lease_until - pg_catalog.clock_timestamp())::interval(0),
       h.generation, h.failures,
       CASE WHEN h.started_at IS NULL THEN (pg_catalog.clock_timestamp() - h.claimed_at)::interval(0) END,
       h.session_bound
FROM baton_internal.visible_long_held h;
COMMENT ON VIEW baton.in_flight IS 'who holds what, for how long, started or not; no payload';
COMMENT ON COLUMN baton.in_flight.held IS 'time since the claim';
COMMENT ON COLUMN baton.in_flight.running IS 'time since baton.start; NULL: not started';
COMMENT ON COLUMN baton.in_flight.not_started IS 'time since the claim of a message that is not started';
COMMENT ON COLUMN baton.in_flight.session_bound IS 'the claim ends with its session (pg_baton.session_claims)';

-- Quarantined messages. What the reader may not see of the queue's view is not shown here either.
CREATE VIEW baton_internal.visible_quarantined WITH (security_barrier) AS
SELECT d.queue_id, d.id, d.quarantined_at, d.cause, d.reason, d.worker, d.generation, d.failures,
       (d.message).message_id, (d.message).routing_key, (d.message).message_class, COALESCE((d.message).priority, 5) AS priority, (d.message).enqueued_at,
       d.error,
       CASE WHEN pg_catalog.has_column_privilege(q.view_oid, 'headers', 'SELECT') THEN (d.message).headers END AS headers,
       CASE WHEN pg_catalog.has_column_privilege(q.view_oid, 'payload_ref', 'SELECT') THEN (d.message).payload_ref END AS payload_ref,
       CASE WHEN pg_catalog.has_column_privilege(q.view_oid, 'payload', 'SELECT') THEN (d.message).payload END AS payload,
       CASE WHEN pg_catalog.has_column_privilege(q.view_oid, 'payload_bytes', 'SELECT') THEN (d.message).payload_bytes END AS payload_bytes
FROM baton_data.quarantined d
JOIN baton_internal.visible_queue q ON q.id = d.queue_id;

CREATE FUNCTION baton.quarantined(queue text)
    RETURNS TABLE (id bigint, quarantined_at timestamptz, cause text, reason text, worker text, generation bigint, failures integer,
                   message_id text, routing_key text, message_class text, priority integer, enqueued_at timestamptz, error jsonb,
                   headers jsonb, payload_ref text, payload jsonb, payload_bytes bytea)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 100
BEGIN ATOMIC
    SELECT d.id, d.quarantined_at, d.cause, d.reason, d.worker, d.generation, d.failures, d.message_id, d.routing_key, d.message_class,
           d.priority, d.enqueued_at, d.error, d.headers, d.payload_ref, d.payload, d.payload_bytes
    FROM baton_internal.require_look(queue) q (id)
    CROSS JOIN LATERAL (SELECT v.* FROM baton_internal.visible_quarantined v WHERE v.queue_id = q.id OFFSET 0) d
    ORDER BY d.quarantined_at, d.id;
END;
COMMENT ON FUNCTION baton.quarantined IS 'messages set aside, with why; columns you may not see in the queue''s view are NULL';

CREATE VIEW baton_internal.visible_evidence WITH (security_barrier) AS
SELECT e.queue_id, e.id, e.at, e.generation, e.failures, e.worker, e.verdict, e.reason, e.error
FROM baton_data.evidence e
JOIN baton_internal.visible_queue q ON q.id = e.queue_id;

CREATE FUNCTION baton.evidence(queue text, id bigint)
    RETURNS TABLE (at timestamptz, generation bigint, failures integer, worker text, verdict text, reason text, error jsonb)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 20
BEGIN ATOMIC
    SELECT e.at, e.generation, e.failures, e.worker, e.verdict, e.reason, e.error
    FROM baton_internal.require_look(queue) q (queue_id)
    CROSS JOIN LATERAL (SELECT v.* FROM baton_internal.visible_evidence v WHERE v.queue_id = q.queue_id AND v.id = evidence.id OFFSET 0) e
    ORDER BY e.at;
END;
COMMENT ON FUNCTION baton.evidence IS 'what was reported with each failed attempt of a message';

CREATE VIEW baton.audit WITH (security_barrier) AS
SELECT a.at, a.actor, a.acting_as, a.action, a.queue, a.affected, a.reason, a.details
FROM baton_data.audit a
WHERE pg_catalog.pg_has_role('pg_monitor', 'USAGE')
   OR a.queue_id IN (SELECT q.id FROM baton_internal.visible_queue q);
COMMENT ON VIEW baton.audit IS 'who took work away, destroyed or overruled something, of queues you may look at; members of pg_monitor see all of it';
COMMENT ON COLUMN baton.audit.actor IS 'session user';
COMMENT ON COLUMN baton.audit.acting_as IS 'role whose privileges were used';

CREATE FUNCTION baton.describe_queue(queue text) RETURNS TABLE (option text, value text, meaning text)
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
COMMENT ON FUNCTION baton.describe_queue IS 'every option of a queue with its value';

CREATE FUNCTION baton.backlog(queue text) RETURNS double precision
    AS 'MODULE_PATHNAME', 'baton_backlog' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.backlog IS 'messages that are due and not finished (ready, claimed, settling), for autoscalers; never null';
