-- Making, changing and dropping queues. NULL for an option means its default (create_queue) or "leave it" (alter_queue).
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

-- Gives the views of all queues the query that this version would make them with: for upgrade scripts.
CREATE FUNCTION baton_internal.refresh_views() RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_refresh_views' LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION baton.drop_queue(name text, if_exists boolean DEFAULT false, discard boolean DEFAULT false)
    RETURNS boolean AS 'MODULE_PATHNAME', 'baton_drop_queue' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.drop_queue IS 'drop a queue; refuses while unsettled messages are in it unless discard; true if it was dropped';

CREATE FUNCTION baton.fence(queue text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'baton_fence' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.fence IS 'kill every token of the queue at once; returns how many live claims ended';

CREATE FUNCTION baton.adopt(queue text DEFAULT NULL) RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_adopt' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.adopt IS 'say that this copy of the queue (or of all) is meant to work; returns how many queues were adopted';

CREATE FUNCTION baton.activate(queue text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'baton_activate' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.activate IS 'make messages that arrived by logical replication ready; returns how many';

CREATE FUNCTION baton.pause(queue text) RETURNS void
    AS 'MODULE_PATHNAME', 'baton_pause' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.pause IS 'stop handing out messages; settling goes on';
CREATE FUNCTION baton.resume(queue text) RETURNS void
    AS 'MODULE_PATHNAME', 'baton_resume' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.resume IS 'hand out messages again';

CREATE FUNCTION baton.hold_rotation(how_long interval, queue text DEFAULT NULL) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'baton_hold_rotation' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.hold_rotation IS 'truncate no segment for a while, as a dump needs it; 0 ends it; returns until when';
