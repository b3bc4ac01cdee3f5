CREATE FUNCTION baton.claim(
    queue text, worker text DEFAULT NULL, max_items integer DEFAULT 1, lease interval DEFAULT NULL, classes text[] DEFAULT NULL,
    max_bytes integer DEFAULT NULL, attempt_id uuid DEFAULT NULL)
    RETURNS SETOF baton.delivery
    AS 'MODULE_PATHNAME', 'baton_claim' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION baton.claim IS 'take messages under lease; acts at once';

CREATE FUNCTION baton.take(
    queue text, max_items integer DEFAULT 1, worker text DEFAULT NULL, classes text[] DEFAULT NULL, max_bytes integer DEFAULT NULL)
    RETURNS SETOF baton.message
    AS 'MODULE_PATHNAME', 'baton_take' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION baton.take IS 'claim and settle in the caller''s transaction: commit means done, rollback means back and counted as a failure';

CREATE PROCEDURE baton.wait(queue text, timeout interval DEFAULT '20 s', INOUT reason text DEFAULT NULL)
    AS 'MODULE_PATHNAME', 'baton_wait' LANGUAGE C;
COMMENT ON PROCEDURE baton.wait IS 'sleep without a snapshot until the queue has something to claim; reason: ready, timeout, paused, statement_timeout';

CREATE PROCEDURE baton.wait_any(queues text[], timeout interval DEFAULT '20 s', INOUT queue text DEFAULT NULL)
    AS 'MODULE_PATHNAME', 'baton_wait_any' LANGUAGE C;
COMMENT ON PROCEDURE baton.wait_any IS 'sleep until one of the queues has something to claim, and say which; NULL after the timeout';

CREATE FUNCTION baton.channel(queue text) RETURNS text
    AS 'MODULE_PATHNAME', 'baton_channel' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.channel IS 'the channel to LISTEN to, for a queue with notify => true';

CREATE FUNCTION baton.why_empty(queue text, worker text DEFAULT NULL) RETURNS text
    AS 'MODULE_PATHNAME', 'baton_why_empty' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.why_empty IS 'why a claim comes back empty now: empty, paused, rate, inflight_cap, blocked, restored, disabled; NULL when something is there to claim';
