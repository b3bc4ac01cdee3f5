-- Acknowledged messages of queues with retention, placed by the time at which they may go (C++: core/retained_ring.hpp).
-- Rows are only added, by the acknowledging transaction itself, and a table is truncated as a whole; columns that may be
-- null come last, so that those that are read by every look are found at fixed offsets. The index answers "settled when"
-- and, since a few pages hold what one queue settled at a time, "which message" as well, at a thousandth of the cost of
-- a B-tree entry for each message. A whole message stays in its row: TOAST only beyond a page.
CREATE FUNCTION baton_internal.make_retained_table(n integer) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format($sql$
        CREATE TABLE baton_data.retained_%1$s (
            queue_id      integer     NOT NULL,
            failures      integer     NOT NULL,
            id            bigint      NOT NULL,
            settled_at    timestamptz NOT NULL,
            drop_at       timestamptz NOT NULL,
            generation    bigint      NOT NULL,
            enqueued_at   timestamptz,
            not_before    timestamptz,
            expires_at    timestamptz,
            lane          integer,
            priority      integer,
            worker        text,
            message_id    text,
            routing_key   text,
            message_class text,
            payload_ref   text,
            headers       jsonb,
            payload       jsonb,
            payload_bytes bytea
        ) USING heap
        WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false, vacuum_truncate = false, toast.vacuum_truncate = false,
              toast_tuple_target = 8160)$sql$, n);
    EXECUTE format('ALTER TABLE baton_data.retained_%s ALTER COLUMN payload SET STORAGE MAIN, ALTER COLUMN payload_bytes SET STORAGE MAIN', n);
    EXECUTE format('CREATE INDEX retained_%1$s_when ON baton_data.retained_%1$s USING brin (settled_at, queue_id, id) WITH (pages_per_range = 16)', n);
    EXECUTE format('COMMENT ON TABLE baton_data.retained_%s IS ''acknowledged messages of queues with retention''', n);
    PERFORM pg_extension_config_dump(format('baton_data.retained_%s', n), '');
END;
$$;
SELECT baton_internal.make_retained_table(n) FROM pg_catalog.generate_series(0, 35) n;

-- What the retention worker remembers of a retained table: since when everything in it may go, by the clock and by the
-- transactions, and the transaction that a reader's snapshot must see as over to read it (0: any may).
CREATE TABLE baton_internal.retained_note (
    n            integer NOT NULL CONSTRAINT retained_note_pkey PRIMARY KEY,
    passed_at    timestamptz,
    passed_xid   xid8,
    guard_xid    xid8,
    truncated_at timestamptz
);
INSERT INTO baton_internal.retained_note (n) SELECT n FROM pg_catalog.generate_series(0, 35) n;

-- One attempt at truncating a retained table that nothing keeps. Returns how many were.
CREATE FUNCTION baton_internal.reclaim_retained() RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_reclaim_retained' LANGUAGE C VOLATILE PARALLEL UNSAFE;

-- How many messages of the queue are retained whose time is not over.
CREATE FUNCTION baton_internal.count_retained(queue_id integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'baton_count_retained' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

CREATE FUNCTION baton.hold(queue text, reason text) RETURNS void
    AS 'MODULE_PATHNAME', 'baton_hold' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.hold IS 'legal hold: nothing that is retained of the queue goes, and it cannot be dropped';
CREATE FUNCTION baton.unhold(queue text, reason text DEFAULT NULL) RETURNS boolean
    AS 'MODULE_PATHNAME', 'baton_unhold' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.unhold IS 'end the legal hold; true if there was one';

CREATE FUNCTION baton.retained(
    queue text, from_time timestamptz DEFAULT NULL, until_time timestamptz DEFAULT NULL, ids bigint[] DEFAULT NULL, max_items integer DEFAULT NULL)
    RETURNS TABLE (id bigint, settled_at timestamptz, drop_at timestamptz, worker text, generation bigint, failures integer,
                   message_id text, routing_key text, message_class text, priority integer, enqueued_at timestamptz,
                   headers jsonb, payload_ref text, payload jsonb, payload_bytes bytea)
    AS 'MODULE_PATHNAME', 'baton_retained' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1000;
COMMENT ON FUNCTION baton.retained IS 'acknowledged messages that are kept; columns you may not see in the queue''s view are NULL';
CREATE FUNCTION baton.replay(
    queue text, from_time timestamptz DEFAULT NULL, until_time timestamptz DEFAULT NULL, message_class text DEFAULT NULL,
    routing_key text DEFAULT NULL, ids bigint[] DEFAULT NULL, dry_run boolean DEFAULT true, rate integer DEFAULT NULL,
    max_items integer DEFAULT 100000, reason text DEFAULT NULL)
    RETURNS TABLE (messages bigint, bytes bigint, oldest timestamptz, newest timestamptz, last_due timestamptz, was_dry_run boolean)
    AS 'MODULE_PATHNAME', 'baton_replay' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.replay IS 'offer retained messages again, each as a new message; a dry run unless dry_run => false';
