-- Definitions. Rows change only through create_queue, alter_queue, drop_queue, adopt, activate, fence:
-- backends cache them and are told of a change through the relation cache entry of the queue's view.
CREATE TABLE baton_internal.queue (
    id                integer     NOT NULL CONSTRAINT queue_pkey PRIMARY KEY,
    name              text        COLLATE "C" NOT NULL CONSTRAINT queue_name_key UNIQUE,
    incarnation       integer     NOT NULL,  -- changes with every fence(queue): part of each token
    home_system       bigint      NOT NULL,  -- cluster that is meant to work on this queue (see adopt)
    home_database     oid         NOT NULL,
    segments          integer     NOT NULL CHECK (segments BETWEEN 2 AND 64),
    segment_bytes     bigint      NOT NULL,
    durability        text        NOT NULL CHECK (durability IN ('local', 'replicated', 'async', 'volatile')),
    claim_flush       boolean     NOT NULL,
    replicable        boolean     NOT NULL,
    lease             interval    NOT NULL,
    min_lease         interval    NOT NULL,
    max_lease         interval    NOT NULL,
    max_lifetime      interval    NOT NULL,
    max_attempts      integer     NOT NULL,
    claim_ceiling     integer     NOT NULL,
    backoff           interval    NOT NULL,  -- wait after the first failure; doubles with each further one
    max_backoff       interval    NOT NULL,
    max_delay         interval    NOT NULL,
    max_payload_bytes integer     NOT NULL,
    max_headers_bytes integer     NOT NULL,
    paused            boolean     NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- since 0.2.0
    retention           interval NOT NULL DEFAULT '0',
    replay_window       interval NOT NULL DEFAULT '0',
    expired             text     NOT NULL DEFAULT 'drop' CHECK (expired IN ('drop', 'keep')),
    expiry_ends_lease   boolean  NOT NULL DEFAULT false,
    start_within        interval NOT NULL DEFAULT '0',
    notify              boolean  NOT NULL DEFAULT false,
    held                text,        -- why nothing that is retained may go (hold); NULL: no hold
    rotation_held_until timestamptz  -- no truncation before (hold_rotation)
);
COMMENT ON TABLE baton_internal.queue IS 'queue definitions';
CREATE SEQUENCE baton_internal.queue_id_seq AS integer;

-- The key of this database's tokens. Not dumped: a logical copy makes its own and so refuses the original's tokens.
CREATE TABLE baton_internal.token_key (
    only_row boolean NOT NULL DEFAULT true CONSTRAINT token_key_pkey PRIMARY KEY CHECK (only_row),
    key      bytea   NOT NULL CHECK (pg_catalog.octet_length(key) = 16)
);
CREATE FUNCTION baton_internal.random_bytes(n integer) RETURNS bytea
    AS 'MODULE_PATHNAME', 'baton_random_bytes' LANGUAGE C VOLATILE STRICT;
INSERT INTO baton_internal.token_key (key) VALUES (baton_internal.random_bytes(16));

-- Map epochs: one per build, truncation or rebuild of a map. It starts at the seconds since 2000-01-01 and is dumped,
-- so that neither a restore nor a new cluster repeats one. (epoch << 32 | generation) is the fencing number of the world outside.
CREATE SEQUENCE baton_internal.epoch_seq AS bigint;
SELECT pg_catalog.setval('baton_internal.epoch_seq',
    pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - '2000-01-01 00:00:00+00'::timestamptz))::bigint);

-- Names of workers behind the 4-byte number in a slot, for display only. Written by the workers, removed when out of use.
CREATE TABLE baton_internal.worker_name (
    hash integer     NOT NULL CONSTRAINT worker_name_pkey PRIMARY KEY,
    name text        NOT NULL,
    seen timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()  -- its last claim, to the day
);

-- Quarantined messages of all queues, with why they are here.
CREATE TABLE baton_data.quarantined (
    queue_id       integer     NOT NULL,
    id             bigint      NOT NULL,
    generation     bigint      NOT NULL,
    failures       integer     NOT NULL,
    quarantined_at timestamptz NOT NULL,
    cause          text        NOT NULL CHECK (cause IN ('verb', 'max_attempts', 'claim_ceiling', 'expired')),
    worker         text,
    reason         text,
    error          jsonb,
    message        baton.message NOT NULL,
    -- since 0.2.0
    expires_at     timestamptz,  -- removed from then on; NULL: kept
    CONSTRAINT quarantined_pkey PRIMARY KEY (queue_id, id)
);
CREATE INDEX quarantined_expires_idx ON baton_data.quarantined (queue_id, expires_at);
COMMENT ON TABLE baton_data.quarantined IS 'messages set aside with evidence';

-- What handlers said about failed attempts. Insert-only.
CREATE TABLE baton_data.evidence (
    queue_id   integer     NOT NULL,
    id         bigint      NOT NULL,
    generation bigint      NOT NULL,
    failures   integer     NOT NULL,
    worker     text,
    at         timestamptz NOT NULL,
    verdict    text        NOT NULL,
    reason     text,
    error      jsonb
);
CREATE INDEX evidence_message_idx ON baton_data.evidence (queue_id, id);
-- drop_queue deletes, also where all tables are published.
ALTER TABLE baton_data.evidence REPLICA IDENTITY FULL;
COMMENT ON TABLE baton_data.evidence IS 'reasons and errors reported with release and quarantine';

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
CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON baton_data.audit
    FOR EACH STATEMENT EXECUTE FUNCTION baton_internal.refuse_change();
ALTER TABLE baton_data.audit ENABLE ALWAYS TRIGGER refuse_change;

SELECT pg_catalog.pg_extension_config_dump('baton_internal.queue', '');
SELECT pg_catalog.pg_extension_config_dump('baton_internal.queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('baton_internal.epoch_seq', '');
SELECT pg_catalog.pg_extension_config_dump('baton_data.quarantined', '');
SELECT pg_catalog.pg_extension_config_dump('baton_data.evidence', '');
SELECT pg_catalog.pg_extension_config_dump('baton_data.audit', '');
