-- What pg_baton is made of in this database, one line per fact and in an order that depends on names alone: for comparing
-- an upgraded database with a fresh one. Queues and their relations are in it, data is not.
WITH schemas AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl
    FROM pg_catalog.pg_namespace n
    WHERE n.nspname IN ('baton', 'baton_queue', 'baton_data', 'baton_internal')
), relation AS (
    SELECT c.*, c.oid::regclass::text AS name
    FROM pg_catalog.pg_class c
    JOIN schemas s ON s.oid = c.relnamespace
), routine AS (
    SELECT p.*, p.oid::regprocedure::text AS name
    FROM pg_catalog.pg_proc p
    JOIN schemas s ON s.oid = p.pronamespace
), type AS (
    SELECT t.*, t.oid::regtype::text AS name
    FROM pg_catalog.pg_type t
    JOIN schemas s ON s.oid = t.typnamespace
), acls (what, name, acl) AS (
    SELECT 'schema', nspname::text, COALESCE(nspacl, acldefault('n', nspowner)) FROM schemas
    UNION ALL
    SELECT 'relation', name, COALESCE(relacl, acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", relowner)) FROM relation WHERE relkind <> 'i'
    UNION ALL
    SELECT 'column', r.name || '.' || a.attname, a.attacl
    FROM relation r
    JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attacl IS NOT NULL
    UNION ALL
    SELECT 'routine', name, COALESCE(proacl, acldefault('f', proowner)) FROM routine
    UNION ALL
    SELECT 'type', name, COALESCE(typacl, acldefault('T', typowner)) FROM type
    UNION ALL
    -- what pg_dump takes for given, and so leaves out
    SELECT 'initially ' || i.type, i.identity, p.initprivs
    FROM pg_catalog.pg_init_privs p
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(p.classoid, p.objoid, p.objsubid) i
    WHERE p.privtype = 'e'
), comments (what, name, comment) AS (
    SELECT i.type, i.identity, d.description
    FROM pg_catalog.pg_description d
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classoid, d.objoid, d.objsubid) i
    WHERE i.identity ~ '^"?baton' OR i.schema ~ '^baton' OR i.identity = 'pg_baton'
)
SELECT line
FROM (
    SELECT format('extension %s: version %s, schema %s, relocatable %s, owner %s', e.extname, e.extversion, e.extnamespace::regnamespace,
                  e.extrelocatable, e.extowner::regrole) AS line
    FROM pg_catalog.pg_extension e
    WHERE e.extname = 'pg_baton'
    UNION ALL
    SELECT format('member %s %s', i.type, i.identity)
    FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND e.extname = 'pg_baton'
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) i
    WHERE d.deptype = 'e'
    UNION ALL
    SELECT format('dumped %s WHERE %L', t.oid::regclass, t.condition)
    FROM pg_catalog.pg_extension e
    CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) t (oid, condition)
    WHERE e.extname = 'pg_baton'
    UNION ALL
    SELECT format('acl of %s %s: %s', a.what, a.name, (SELECT string_agg(i::text, ' ' ORDER BY i::text) FROM unnest(a.acl) i))
    FROM acls a
    UNION ALL
    SELECT format('comment on %s %s: %s', what, name, comment) FROM comments
    UNION ALL
    SELECT format('schema %s: owner %s', nspname, nspowner::regrole) FROM schemas
    UNION ALL
    SELECT format('relation %s: kind %s, persistence %s, owner %s, am %s, options %s, toast options %s, of type %s, replica identity %s, row security %s',
                  r.name, r.relkind, r.relpersistence, r.relowner::regrole, a.amname,
                  (SELECT string_agg(o, ' ' ORDER BY o) FROM unnest(r.reloptions) o),
                  (SELECT string_agg(o, ' ' ORDER BY o) FROM pg_catalog.pg_class t, unnest(t.reloptions) o WHERE t.oid = r.reltoastrelid),
                  NULLIF(r.reloftype, 0)::regtype, r.relreplident, r.relrowsecurity)
    FROM relation r
    LEFT JOIN pg_catalog.pg_am a ON a.oid = r.relam
    UNION ALL
    SELECT format('column %s %s of %s: %s%s, default %s, collation %s, storage %s, compression %s, statistics %s', a.attname,
                  pg_catalog.count(*) OVER (PARTITION BY r.oid ORDER BY a.attnum), r.name, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' NOT NULL' END, pg_get_expr(d.adbin, d.adrelid), NULLIF(a.attcollation, 0)::regcollation,
                  a.attstorage, a.attcompression, COALESCE(NULLIF(a.attstattarget, -1), -1))
    FROM relation r
    JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
    UNION ALL
    SELECT format('constraint %s of %s: %s', c.conname, COALESCE(r.name, t.name), pg_get_constraintdef(c.oid))
    FROM pg_catalog.pg_constraint c
    LEFT JOIN relation r ON r.oid = c.conrelid
    LEFT JOIN type t ON t.oid = c.contypid
    WHERE COALESCE(r.name, t.name) IS NOT NULL
    UNION ALL
    SELECT format('index %s: %s, valid %s', r.name, pg_get_indexdef(r.oid), i.indisvalid)
    FROM relation r
    JOIN pg_catalog.pg_index i ON i.indexrelid = r.oid
    UNION ALL
    SELECT format('trigger on %s: %s, enabled %s', r.name, pg_get_triggerdef(t.oid), t.tgenabled)
    FROM relation r
    JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
    UNION ALL
    SELECT format('view %s: %s', r.name, pg_get_viewdef(r.oid, true)) FROM relation r WHERE r.relkind = 'v'
    UNION ALL
    SELECT format('sequence %s: %s, from %s by %s, %s to %s, cache %s, cycle %s, owned by %s', r.name, format_type(s.seqtypid, NULL), s.seqstart,
                  s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
                  (SELECT d.refobjid::regclass FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype = 'a'))
    FROM relation r
    JOIN pg_catalog.pg_sequence s ON s.seqrelid = r.oid
    UNION ALL
    SELECT format('routine %s: owner %s, %s', r.name, r.proowner::regrole, pg_get_functiondef(r.oid)) FROM routine r
    UNION ALL
    SELECT format('type %s: kind %s, owner %s, base %s, NOT NULL %s, default %s', t.name, t.typtype, t.typowner::regrole,
                  format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault)
    FROM type t
    UNION ALL
    SELECT format('label %s %s of %s', e.enumlabel, row_number() OVER (PARTITION BY t.oid ORDER BY e.enumsortorder), t.name)
    FROM type t
    JOIN pg_catalog.pg_enum e ON e.enumtypid = t.oid
    UNION ALL
    SELECT format('operator class %I of %s: family %I, for %s, default %s, stores %s', c.opcname, a.amname, f.opfname, c.opcintype::regtype,
                  c.opcdefault, NULLIF(c.opckeytype, 0)::regtype)
    FROM pg_catalog.pg_opclass c
    JOIN pg_catalog.pg_am a ON a.oid = c.opcmethod
    JOIN pg_catalog.pg_opfamily f ON f.oid = c.opcfamily
    JOIN schemas s ON s.oid = c.opcnamespace
    UNION ALL
    SELECT format('access method %s: %s', a.amname, a.amhandler) FROM pg_catalog.pg_am a WHERE a.amname ~ '^baton'
) l
ORDER BY line COLLATE "C";
