-- One row per slot of a map. For the queues' views and for tests. Checks no privilege: the schema is closed.
CREATE FUNCTION baton_internal.map_slots(segment regclass)
    RETURNS TABLE (tid tid, block bigint, idx integer, lane integer, id bigint, state text, kind text, xid xid8, generation bigint,
                   failures integer, key_hash integer, deadline timestamptz, due timestamptz, claimed_at timestamptz, started_at timestamptz,
                   worker text, is_foreign boolean, resolved text, pid integer)
    AS 'MODULE_PATHNAME', 'baton_map_slots' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1000;
CREATE FUNCTION baton_internal.map_meta(segment regclass)
    RETURNS TABLE (format_version integer, epoch bigint, open_seq bigint, guard_xid xid8, pages bigint, lanes integer)
    AS 'MODULE_PATHNAME', 'baton_map_meta' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
-- Hints of a segment's lanes, as shared memory has them.
CREATE FUNCTION baton_internal.lane_hints(segment regclass)
    RETURNS TABLE (lane integer, frontier bigint, appended bigint, revisits integer, timed integer, sweep_at timestamptz, low_water bigint)
    AS 'MODULE_PATHNAME', 'baton_lane_hints' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
-- Counters since server start, and waiting workers.
CREATE FUNCTION baton_internal.queue_counters(queue_id integer)
    RETURNS TABLE (enqueued bigint, claimed bigint, acked bigint, released bigint, quarantined bigint, expired_leases bigint, fenced bigint, waiting integer,
                   expired bigint)
    AS 'MODULE_PATHNAME', 'baton_queue_counters' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
-- Read every page of a queue's lanes now: resolve outcomes, publish what is claimable. Returns slots read.
CREATE FUNCTION baton_internal.sweep(queue text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'baton_sweep' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
-- One attempt at reclaiming the queue's drained segments. Returns how many were truncated.
CREATE FUNCTION baton_internal.rotate(queue text) RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_rotate' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
-- What the workers last did, as shared memory has it.
CREATE FUNCTION baton_internal.worker_status()
    RETURNS TABLE (database oid, worker text, pid integer, step text, last_success timestamptz, last_error timestamptz, error text, runs bigint,
                   state text, since timestamptz)
    AS 'MODULE_PATHNAME', 'baton_worker_status' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
-- The outcome words with their SQLSTATE.
CREATE FUNCTION baton.outcomes() RETURNS TABLE (outcome text, sqlstate text, meaning text)
    AS 'MODULE_PATHNAME', 'baton_outcomes' LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 20;
COMMENT ON FUNCTION baton.outcomes IS 'the outcome words of the verbs, with the SQLSTATE of those that raise';
CREATE FUNCTION baton_internal.can_look(queue text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'baton_can_look' LANGUAGE C STABLE STRICT PARALLEL SAFE;
