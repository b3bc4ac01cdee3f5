CREATE FUNCTION baton.start(token text) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'baton_start' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.start IS 'stamp the start of execution; acts at once; returns the lease''s deadline';

CREATE FUNCTION baton.extend(token text, lease interval DEFAULT NULL) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'baton_extend' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.extend IS 'new deadline = clock + lease, never earlier than it was; acts at once; returns the deadline';

CREATE FUNCTION baton.extend_batch(tokens text[], lease interval DEFAULT NULL)
    RETURNS TABLE (ord integer, outcome text, lease_until timestamptz)
    AS 'MODULE_PATHNAME', 'baton_extend_batch' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION baton.extend_batch IS 'extend many leases; one outcome per token, in input order';

CREATE FUNCTION baton.ack(token text) RETURNS text
    AS 'MODULE_PATHNAME', 'baton_ack' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.ack IS 'acknowledge, in the caller''s transaction; raises when the token is fenced';

CREATE FUNCTION baton.ack_batch(tokens text[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'baton_ack_batch' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.ack_batch IS 'acknowledge many, all or none; raises when any token is fenced; returns how many';

CREATE FUNCTION baton.release(token text, delay interval DEFAULT NULL, reason text DEFAULT NULL, failed boolean DEFAULT true, error jsonb DEFAULT NULL)
    RETURNS TABLE (state text, not_before timestamptz, failures integer)
    AS 'MODULE_PATHNAME', 'baton_release' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.release IS 'give a message back; counts a failure unless failed => false; the last failure quarantines';

CREATE FUNCTION baton.hand_back(tokens text[]) RETURNS TABLE (ord integer, outcome text)
    AS 'MODULE_PATHNAME', 'baton_hand_back' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION baton.hand_back IS 'give back work that was not started; acts at once and counts no failure';

CREATE FUNCTION baton.quarantine(token text, reason text DEFAULT NULL, error jsonb DEFAULT NULL) RETURNS text
    AS 'MODULE_PATHNAME', 'baton_quarantine' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.quarantine IS 'set a message aside with evidence, in the caller''s transaction';

-- verdicts: ack, release, release_unfailed, quarantine; one per token, or one for all.
CREATE FUNCTION baton.settle(tokens text[], verdicts text[], delays interval[] DEFAULT NULL, reasons text[] DEFAULT NULL)
    RETURNS TABLE (ord integer, outcome text)
    AS 'MODULE_PATHNAME', 'baton_settle' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION baton.settle IS 'settle many messages, each with its own verdict; one outcome per token, in input order';

-- First the outcomes (ord and outcome set), then the new deliveries (ord and outcome null).
CREATE FUNCTION baton.settle_and_claim(
    queue text, tokens text[], verdicts text[] DEFAULT '{ack}', worker text DEFAULT NULL, max_items integer DEFAULT 1, lease interval DEFAULT NULL,
    classes text[] DEFAULT NULL, max_bytes integer DEFAULT NULL, delays interval[] DEFAULT NULL, reasons text[] DEFAULT NULL)
    RETURNS TABLE (ord integer, outcome text, token text, id bigint, message_id text, routing_key text, message_class text, priority integer,
                   generation bigint, failures integer, enqueued_at timestamptz, lease_until timestamptz, fence bigint, headers jsonb,
                   payload jsonb, payload_bytes bytea, payload_ref text, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'baton_settle_and_claim' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION baton.settle_and_claim IS 'settle what is done and claim what is next in one call and one flush';
