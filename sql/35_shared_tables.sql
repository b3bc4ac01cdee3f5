-- Tables of all queues, of the same kind as segments. later_<n>: due-time buckets, messages that are due later than
-- pg_baton.soon (three levels of six tables; C++: core/wheel.hpp). long_<n>: claims that would hold back the rotation of
-- their segment. Autovacuum is off as for segments: they are truncated when they are empty.
CREATE FUNCTION baton_internal.make_shared_table(name text) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('CREATE TABLE baton_data.%1$I OF baton.message (CONSTRAINT %2$I PRIMARY KEY (queue_id, id)) USING heap'
                   ' WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false, vacuum_truncate = false,'
                   ' toast.vacuum_truncate = false, toast_tuple_target = 8160)', name, name || '_pkey');
    EXECUTE format('ALTER TABLE baton_data.%I ALTER COLUMN payload SET STORAGE MAIN, ALTER COLUMN payload_bytes SET STORAGE MAIN', name);
    EXECUTE format('CREATE INDEX %2$I ON baton_data.%1$I USING baton_lease'
                   ' (id, lane, generation, failures, not_before, queue_id, expires_at)', name, name || '_map');
    EXECUTE format('CREATE TRIGGER refuse_update BEFORE UPDATE ON baton_data.%I FOR EACH ROW'
                   ' EXECUTE FUNCTION baton_internal.refuse_update()', name);
    PERFORM pg_extension_config_dump(format('baton_data.%I', name), '');
END;
$$;
SELECT baton_internal.make_shared_table('later_' || n) FROM pg_catalog.generate_series(0, 17) n;
SELECT baton_internal.make_shared_table('long_' || n) FROM pg_catalog.generate_series(0, 1) n;
COMMENT ON TABLE baton_data.later_0 IS 'messages of all queues that are due later, by due time';
COMMENT ON TABLE baton_data.long_0 IS 'long claims of all queues';

-- Messages in due-time buckets. The planner looks up one queue's by the primary keys.
DO LANGUAGE plpgsql $$
BEGIN
    EXECUTE 'CREATE VIEW baton_internal.later_message AS '
        || (SELECT pg_catalog.string_agg(pg_catalog.format('SELECT m.* FROM baton_data.later_%s m', n), ' UNION ALL ' ORDER BY n)
            FROM pg_catalog.generate_series(0, 17) n);
END
$$;
COMMENT ON VIEW baton_internal.later_message IS 'messages of all queues in due-time buckets';
