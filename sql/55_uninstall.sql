-- Taking pg_baton out of a database.

-- What is here, as uninstall reports it: what it would drop, what is in its way, what it leaves. unsettled is
-- null where that cannot be told (a damaged
-- queue).
CREATE FUNCTION baton_internal.uninstall_plan()
    RETURNS TABLE (action text, kind text, object text, unsettled bigint, quarantined bigint, retained bigint, detail text)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    WITH RECURSIVE member AS (
        SELECT d.classid, d.objid
        FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_extension e ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'pg_baton'
        WHERE d.deptype = 'e'
    ), relation AS (
        SELECT c.oid, c.relkind, c.relowner, q.id AS queue_id
        FROM pg_catalog.pg_class c
        LEFT JOIN baton_internal.queue q
            ON q.name = CASE c.relnamespace WHEN 'baton_data'::regnamespace
                            THEN (SELECT n.name FROM baton_internal.queue n
                                  WHERE n.id = pg_catalog.substring(c.relname::text, '^q(\d{1,9}|1\d{9})_(?:\d+|id)$')::integer)
                            ELSE c.relname::text
                        END
        WHERE (c.relnamespace = 'baton_data'::regnamespace AND (c.relkind = 'r' AND c.reloftype = 'baton.message'::regtype
                                                                OR c.relkind = 'S' AND c.relname ~ '^q\d+_id$')
               OR c.relnamespace = 'baton_queue'::regnamespace AND c.relkind = 'v' AND q.id IS NOT NULL)
          AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_catalog.pg_class'::regclass AND m.objid = c.oid)
    ), counted AS (
        SELECT s.queue_id, pg_catalog.sum(c.ready + c.scheduled + c.claimed + c.settling + c.uncommitted + c.inactive)::bigint
               + (SELECT t.ready + t.scheduled + t.claimed + t.settling FROM baton_internal.shared_counts(s.queue_id) t) AS unsettled
        FROM baton_internal.visible_segment s
        CROSS JOIN LATERAL baton_internal.map_counts(s.heap) c
        GROUP BY s.queue_id
    ), goes AS (
        SELECT m.classid, m.objid FROM member m
        UNION
        SELECT 'pg_catalog.pg_class'::regclass, r.oid FROM relation r
        UNION
        SELECT d.classid, d.objid
        FROM goes g
        JOIN pg_catalog.pg_depend d ON d.refclassid = g.classid AND d.refobjid = g.objid AND d.deptype IN ('a', 'i')
    )
    SELECT p.action, p.kind, p.object, p.unsettled, p.quarantined, p.retained, p.detail
    FROM (
        SELECT 1 AS ord, 'in the way' AS action, i.type AS kind, i.identity AS object, NULL::bigint AS unsettled, NULL::bigint AS quarantined,
               NULL::bigint AS retained,
               'needs ' || pg_catalog.string_agg(DISTINCT pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0), ', ') AS detail
        FROM pg_catalog.pg_depend d
        JOIN goes g ON g.classid = d.refclassid AND g.objid = d.refobjid
        LEFT JOIN pg_catalog.pg_rewrite v ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND v.oid = d.objid AND v.rulename = '_RETURN'
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(CASE WHEN v.oid IS NULL THEN d.classid ELSE 'pg_catalog.pg_class'::regclass END,
                                                         COALESCE(v.ev_class, d.objid), 0) i
        WHERE d.deptype = 'n'
          AND (d.classid, d.objid) NOT IN (SELECT o.classid, o.objid FROM goes o)  -- hashed, whatever the planner believes
        GROUP BY i.type, i.identity
        UNION ALL
        SELECT 2, 'drop', 'queue', q.name, u.unsettled, a.quarantined, baton_internal.count_retained(q.id),
               pg_catalog.concat_ws(', ', 'owner ' || c.owner, pg_catalog.pg_size_pretty(c.bytes), CASE WHEN u.queue_id IS NULL THEN 'damaged' END,
                                    CASE WHEN q.held IS NOT NULL THEN 'on hold' END)
        FROM baton_internal.queue q
        LEFT JOIN counted u ON u.queue_id = q.id
        CROSS JOIN LATERAL (SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(r.oid)) AS bytes,
                                   pg_catalog.min(pg_catalog.pg_get_userbyid(r.relowner)) AS owner
                            FROM relation r
                            WHERE r.queue_id = q.id) c
        CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS quarantined FROM baton_data.quarantined d WHERE d.queue_id = q.id) a
        UNION ALL
        SELECT 3, 'drop', CASE r.relkind WHEN 'r' THEN 'segment' ELSE 'sequence' END, r.oid::regclass::text, CASE r.relkind WHEN 'S' THEN 0 END, 0, 0,
               'of no queue'
        FROM relation r
        WHERE r.queue_id IS NULL
        UNION ALL
        SELECT 4, 'drop', 'extension', 'pg_baton', NULL, NULL, NULL, pg_catalog.format('%s objects', pg_catalog.count(*))
        FROM member
        UNION ALL
        SELECT 5, 'stays', 'setting', s.setting,
               NULL, NULL, NULL, pg_catalog.concat_ws(' ', 'ALTER', CASE WHEN s.role IS NULL THEN 'DATABASE' ELSE 'ROLE' END, s.role,
                                                CASE WHEN s.role IS NOT NULL AND s.database IS NOT NULL THEN 'IN DATABASE' END, s.database, 'RESET', s.setting)
        FROM (SELECT pg_catalog.split_part(t.setting, '=', 1) AS setting, pg_catalog.quote_ident(d.datname) AS database, pg_catalog.quote_ident(r.rolname) AS role
              FROM pg_catalog.pg_db_role_setting c
              CROSS JOIN LATERAL pg_catalog.unnest(c.setconfig) t (setting)
              LEFT JOIN pg_catalog.pg_database d ON d.oid = c.setdatabase
              LEFT JOIN pg_catalog.pg_roles r ON r.oid = c.setrole
              WHERE t.setting LIKE 'pg\_baton.%' AND (d.oid IS NULL OR d.datname = pg_catalog.current_database())) s
        UNION ALL
        SELECT 6, 'stays', 'library', 'pg_baton', NULL, NULL, NULL, 'in shared_preload_libraries; take it out and restart before its files go'
    ) p
    ORDER BY p.ord, p.kind, p.object;
END;

CREATE FUNCTION baton.uninstall(dry_run boolean DEFAULT true, discard boolean DEFAULT false)
    RETURNS TABLE (action text, kind text, object text, unsettled bigint, quarantined bigint, retained bigint, detail text)
    AS 'MODULE_PATHNAME', 'baton_uninstall' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 20;
COMMENT ON FUNCTION baton.uninstall IS 'drop all queues and the extension; reports what would go unless dry_run => false, refuses while messages are there unless discard';
