-- From 0.1.0 to 0.2.0.
\echo Use "ALTER EXTENSION pg_baton UPDATE TO '0.2.0'" to load this file. \quit

-- A package that is newer than the running server would leave SQL that its library does not know.
DO LANGUAGE plpgsql $$
BEGIN
    IF pg_catalog.string_to_array(baton_internal.library_version(), '.')::integer[] < ARRAY[0, 2, 0] THEN
        RAISE EXCEPTION 'the library that is loaded is pg_baton %', baton_internal.library_version()
            USING ERRCODE = 'QB009', HINT = 'Restart the server, then run ALTER EXTENSION pg_baton UPDATE again.';
    END IF;
END
$$;

ALTER TABLE baton_internal.queue
    ADD COLUMN retention           interval NOT NULL DEFAULT '0',
    ADD COLUMN replay_window       interval NOT NULL DEFAULT '0',
    ADD COLUMN expired             text     NOT NULL DEFAULT 'drop' CHECK (expired IN ('drop', 'keep')),
    ADD COLUMN expiry_ends_lease   boolean  NOT NULL DEFAULT false,
    ADD COLUMN start_within        interval NOT NULL DEFAULT '0',
    ADD COLUMN notify              boolean  NOT NULL DEFAULT false,
    ADD COLUMN held                text,
    ADD COLUMN rotation_held_until timestamptz;

DROP FUNCTION baton.create_queue;
@create FUNCTION baton.create_queue
DROP FUNCTION baton.alter_queue;
@create FUNCTION baton.alter_queue
@replace VIEW baton_internal.visible_queue
@replace VIEW baton_internal.visible_segment
@replace FUNCTION baton.describe_queue

-- Who took work away, destroyed or overruled something. Rows are only added, by the verbs themselves.
@create TABLE baton_data.audit
CREATE INDEX audit_queue_idx ON baton_data.audit (queue_id, at);
@create FUNCTION baton_internal.refuse_change
REVOKE ALL ON FUNCTION baton_internal.refuse_change() FROM PUBLIC;
CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON baton_data.audit
    FOR EACH STATEMENT EXECUTE FUNCTION baton_internal.refuse_change();
ALTER TABLE baton_data.audit ENABLE ALWAYS TRIGGER refuse_change;
SELECT pg_catalog.pg_extension_config_dump('baton_data.audit', '');

@create VIEW baton.audit
GRANT SELECT ON baton.audit TO PUBLIC;

ALTER TABLE baton_internal.worker_name ADD COLUMN seen timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp();

-- What the workers are, besides what they last did; health by step; and who keeps rows.
DROP VIEW baton.health;
DROP FUNCTION baton_internal.worker_status();
@create FUNCTION baton_internal.worker_status
REVOKE ALL ON FUNCTION baton_internal.worker_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.worker_status() TO PUBLIC;
@create VIEW baton.horizon
@create VIEW baton.health
GRANT SELECT ON baton.horizon, baton.health TO PUBLIC;

@create FUNCTION baton_internal.make_shared_table
REVOKE ALL ON FUNCTION baton_internal.make_shared_table(text) FROM PUBLIC;
SELECT baton_internal.make_shared_table('later_' || n) FROM pg_catalog.generate_series(0, 17) n;
SELECT baton_internal.make_shared_table('long_' || n) FROM pg_catalog.generate_series(0, 1) n;
COMMENT ON TABLE baton_data.later_0 IS 'messages of all queues that are due later, by due time';
COMMENT ON TABLE baton_data.long_0 IS 'long claims of all queues';

DO LANGUAGE plpgsql $$
BEGIN
    EXECUTE 'CREATE VIEW baton_internal.later_message AS '
        || (SELECT pg_catalog.string_agg(pg_catalog.format('SELECT m.* FROM baton_data.later_%s m', n), ' UNION ALL ' ORDER BY n)
            FROM pg_catalog.generate_series(0, 17) n);
END
$$;
COMMENT ON VIEW baton_internal.later_message IS 'messages of all queues in due-time buckets';
@create FUNCTION baton_internal.shared_messages
@create FUNCTION baton_internal.shared_counts
@create FUNCTION baton_internal.refresh_views
REVOKE ALL ON FUNCTION baton_internal.shared_messages(integer), baton_internal.shared_counts(integer), baton_internal.refresh_views() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.shared_messages(integer), baton_internal.shared_counts(integer) TO PUBLIC;
@create FUNCTION baton_internal.long_held
REVOKE ALL ON FUNCTION baton_internal.long_held() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.long_held() TO PUBLIC;
@create VIEW baton_internal.visible_long_held
@create FUNCTION baton_internal.map_claims
REVOKE ALL ON FUNCTION baton_internal.map_claims(regclass) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.map_claims(regclass) TO PUBLIC;
@replace VIEW baton.in_flight
DROP FUNCTION baton_internal.map_held(regclass);
SELECT baton_internal.refresh_views();

@create FUNCTION baton_internal.make_retained_table
REVOKE ALL ON FUNCTION baton_internal.make_retained_table(integer) FROM PUBLIC;
SELECT baton_internal.make_retained_table(n) FROM pg_catalog.generate_series(0, 35) n;
@create TABLE baton_internal.retained_note
INSERT INTO baton_internal.retained_note (n) SELECT n FROM pg_catalog.generate_series(0, 35) n;
@create FUNCTION baton_internal.reclaim_retained
@create FUNCTION baton_internal.count_retained
REVOKE ALL ON FUNCTION baton_internal.reclaim_retained(), baton_internal.count_retained(integer) FROM PUBLIC;
@create FUNCTION baton.hold
@create FUNCTION baton.unhold
@create FUNCTION baton.retained
@create FUNCTION baton.replay

@create FUNCTION baton_internal.kept_by
REVOKE ALL ON FUNCTION baton_internal.kept_by(regclass) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.kept_by(regclass) TO PUBLIC;
@create VIEW baton_internal.visible_shared

-- Messages that expire: kept in quarantine where the queue says so, and counted.
ALTER TABLE baton_data.quarantined
    DROP CONSTRAINT quarantined_cause_check,
    ADD CONSTRAINT quarantined_cause_check CHECK (cause IN ('verb', 'max_attempts', 'claim_ceiling', 'expired')),
    ADD COLUMN expires_at timestamptz;
UPDATE baton_data.quarantined SET expires_at = (message).expires_at WHERE (message).expires_at IS NOT NULL;
CREATE INDEX quarantined_expires_idx ON baton_data.quarantined (queue_id, expires_at);
DROP VIEW baton.queue_stats, baton.queue_counters, baton.segments;
DROP FUNCTION baton_internal.map_counts, baton_internal.queue_counters;
@create FUNCTION baton_internal.map_counts
@create FUNCTION baton_internal.queue_counters
REVOKE ALL ON FUNCTION baton_internal.map_counts(regclass), baton_internal.queue_counters(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION baton_internal.map_counts(regclass), baton_internal.queue_counters(integer) TO PUBLIC;
@create VIEW baton.queue_stats
@create VIEW baton.queue_counters
@create VIEW baton.segments
GRANT SELECT ON baton.queue_stats, baton.queue_counters, baton.segments TO PUBLIC;

@create FUNCTION baton.channel

@create FUNCTION baton_internal.uninstall_plan
REVOKE ALL ON FUNCTION baton_internal.uninstall_plan() FROM PUBLIC;
@create FUNCTION baton.uninstall

@create FUNCTION baton.hold_rotation
ALTER TABLE baton_data.evidence REPLICA IDENTITY FULL;

@create FUNCTION baton.revoke
@create FUNCTION baton.reschedule
@create FUNCTION baton.lease_grace

@replace FUNCTION baton.help
