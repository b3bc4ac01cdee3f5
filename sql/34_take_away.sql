-- Against the holder, or without one: for those who look after a queue. Each call leaves a row in baton.audit.
CREATE FUNCTION baton.revoke(queue text, id bigint, failed boolean DEFAULT false, delay interval DEFAULT NULL, reason text DEFAULT NULL) RETURNS text
    AS 'MODULE_PATHNAME', 'baton_revoke' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE;
COMMENT ON FUNCTION baton.revoke IS 'take a message away from its worker; acts at once, its token is refused from then on; returns the outcome';

CREATE FUNCTION baton.reschedule(queue text, id bigint, delay interval DEFAULT NULL, not_before timestamptz DEFAULT NULL, reason text DEFAULT NULL)
    RETURNS TABLE (state text, due timestamptz)
    AS 'MODULE_PATHNAME', 'baton_reschedule' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.reschedule IS 'change when a message that nobody holds is due, in the caller''s transaction';

CREATE FUNCTION baton.lease_grace(queue text, grace interval, reason text DEFAULT NULL) RETURNS TABLE (extended bigint, capped bigint)
    AS 'MODULE_PATHNAME', 'baton_lease_grace' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION baton.lease_grace IS 'lengthen all live leases of a queue at once, within its max_lifetime; capped: those that did not get all of it';
