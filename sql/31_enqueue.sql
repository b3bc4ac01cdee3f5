CREATE FUNCTION baton.enqueue(
    queue text, payload jsonb DEFAULT NULL, message_id text DEFAULT NULL, routing_key text DEFAULT NULL, message_class text DEFAULT NULL,
    priority integer DEFAULT NULL, headers jsonb DEFAULT NULL, delay interval DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, payload_ref text DEFAULT NULL)
    RETURNS TABLE (id bigint, state text)
    AS 'MODULE_PATHNAME', 'baton_enqueue' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.enqueue IS 'put one message into a queue, in the caller''s transaction';

CREATE FUNCTION baton.enqueue_bytes(
    queue text, payload bytea DEFAULT NULL, message_id text DEFAULT NULL, routing_key text DEFAULT NULL, message_class text DEFAULT NULL,
    priority integer DEFAULT NULL, headers jsonb DEFAULT NULL, delay interval DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, payload_ref text DEFAULT NULL)
    RETURNS TABLE (id bigint, state text)
    AS 'MODULE_PATHNAME', 'baton_enqueue_bytes' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.enqueue_bytes IS 'put one message with a binary payload into a queue, in the caller''s transaction';

-- Each array has one element per payload, or exactly one element that holds for all.
CREATE FUNCTION baton.enqueue_batch(
    queue text, payloads jsonb[], message_ids text[] DEFAULT NULL, routing_keys text[] DEFAULT NULL, message_classes text[] DEFAULT NULL,
    priorities integer[] DEFAULT NULL, headers jsonb[] DEFAULT NULL, delays interval[] DEFAULT NULL, not_befores timestamptz[] DEFAULT NULL,
    expires_ats timestamptz[] DEFAULT NULL, payload_refs text[] DEFAULT NULL)
    RETURNS TABLE (ord integer, id bigint, state text)
    AS 'MODULE_PATHNAME', 'baton_enqueue_batch' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION baton.enqueue_batch IS 'put many messages into a queue at once; one bad row and none is enqueued';

CREATE FUNCTION baton.enqueue_batch_bytes(
    queue text, payloads bytea[], message_ids text[] DEFAULT NULL, routing_keys text[] DEFAULT NULL, message_classes text[] DEFAULT NULL,
    priorities integer[] DEFAULT NULL, headers jsonb[] DEFAULT NULL, delays interval[] DEFAULT NULL, not_befores timestamptz[] DEFAULT NULL,
    expires_ats timestamptz[] DEFAULT NULL, payload_refs text[] DEFAULT NULL)
    RETURNS TABLE (ord integer, id bigint, state text)
    AS 'MODULE_PATHNAME', 'baton_enqueue_batch_bytes' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION baton.enqueue_batch_bytes IS 'put many messages with binary payloads into a queue at once';

-- INSERT and COPY into baton_queue.<name>. Arguments: none; the queue is known by its view.
CREATE FUNCTION baton_internal.view_insert() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_view_insert' LANGUAGE C;
CREATE FUNCTION baton_internal.view_insert_done() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_view_insert_done' LANGUAGE C;
CREATE FUNCTION baton_internal.view_refuse() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_view_refuse' LANGUAGE C;
-- Segments: a message row is inserted once and deleted once.
CREATE FUNCTION baton_internal.refuse_update() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_refuse_update' LANGUAGE C;

CREATE FUNCTION baton.outbox() RETURNS trigger AS 'MODULE_PATHNAME', 'baton_outbox' LANGUAGE C;
COMMENT ON FUNCTION baton.outbox IS 'statement-level trigger: CREATE TRIGGER … AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox(''queue'')';
