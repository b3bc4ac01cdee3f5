-- The row format of every segment. NULL means: lane of a plain new message (lane), never moved
-- (generation, failures), the queue's own segment (queue_id), default priority (priority).
CREATE TYPE baton.message AS (
    id            bigint,
    enqueued_at   timestamptz,
    not_before    timestamptz,
    expires_at    timestamptz,
    queue_id      integer,
    lane          integer,
    generation    integer,
    failures      integer,
    priority      integer,
    message_id    text,
    routing_key   text,
    message_class text,
    payload_ref   text,
    headers       jsonb,
    payload       jsonb,
    payload_bytes bytea
);
COMMENT ON TYPE baton.message IS 'a message: identity, envelope, payload';

-- What a claim returns.
CREATE TYPE baton.delivery AS (
    token         text,
    id            bigint,
    message_id    text,
    routing_key   text,
    message_class text,
    priority      integer,
    generation    bigint,
    failures      integer,
    enqueued_at   timestamptz,
    lease_until   timestamptz,
    fence         bigint,
    headers       jsonb,
    payload       jsonb,
    payload_bytes bytea,
    payload_ref   text,
    expires_at    timestamptz
);
COMMENT ON TYPE baton.delivery IS 'a claimed message with the token that settles it; fence = (epoch, generation) in one ever-growing number';

CREATE FUNCTION baton_internal.token_is_well_formed(token text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'baton_token_is_well_formed' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE DOMAIN baton.token AS text CONSTRAINT well_formed CHECK (baton_internal.token_is_well_formed(VALUE));
COMMENT ON DOMAIN baton.token IS 'signed proof of one claim; any verb that takes a token takes it as text';
