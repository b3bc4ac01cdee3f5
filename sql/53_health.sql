-- What an operator should know. Both views may be read by everybody; what PostgreSQL shows of other sessions, and whose queues are
-- named, depends on the reader.

-- Whatever keeps rows of this database from being reclaimed. Snapshots of VACUUM do not.
CREATE VIEW baton.horizon AS
SELECT h.kind, h.who, h.pid, h.held::interval(0) AS held, h.transactions, h.remedy
FROM (SELECT 'session' AS kind,
             pg_catalog.concat_ws(', ', COALESCE(a.usename, a.backend_type), NULLIF(a.application_name, ''), a.state) AS who,
             a.pid, pg_catalog.clock_timestamp() - a.xact_start AS held,
             GREATEST(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid))::bigint AS transactions,
             pg_catalog.format('SELECT pg_terminate_backend(%s)', a.pid) AS remedy
      FROM pg_catalog.pg_stat_activity a
      WHERE a.datname = pg_catalog.current_database()
        AND a.pid <> pg_catalog.pg_backend_pid()
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND a.backend_type <> 'walsender'
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = a.pid)
      UNION ALL
      SELECT 'prepared transaction', p.gid, NULL, pg_catalog.clock_timestamp() - p.prepared, pg_catalog.age(p.transaction),
             pg_catalog.format('ROLLBACK PREPARED %L', p.gid)
      FROM pg_catalog.pg_prepared_xacts p
      WHERE p.database = pg_catalog.current_database()
      UNION ALL
      SELECT 'standby', pg_catalog.concat_ws(', ', NULLIF(a.application_name, ''), a.client_addr), a.pid, NULL, pg_catalog.age(a.backend_xmin),
             'end what runs long on that standby, or set hot_standby_feedback = off there'
      FROM pg_catalog.pg_stat_activity a
      WHERE a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL
      UNION ALL
      SELECT 'replication slot', pg_catalog.concat_ws(', ', s.slot_name, CASE WHEN NOT s.active THEN 'nobody connected' END), s.active_pid, NULL,
             pg_catalog.age(s.xmin),
             CASE WHEN s.active THEN 'end what runs long on that standby, or set hot_standby_feedback = off there'
                  ELSE pg_catalog.format('if nobody comes back for it: SELECT pg_drop_replication_slot(%L)', s.slot_name)
             END
      FROM pg_catalog.pg_replication_slots s
      WHERE s.xmin IS NOT NULL
      UNION ALL
      SELECT 'replication slot (catalogs)', pg_catalog.concat_ws(', ', s.slot_name, CASE WHEN NOT s.active THEN 'nobody connected' END), s.active_pid,
             NULL, pg_catalog.age(s.catalog_xmin),
             CASE WHEN s.active THEN 'see why its subscriber is late'
                  ELSE pg_catalog.format('if nobody comes back for it: SELECT pg_drop_replication_slot(%L)', s.slot_name)
             END
      FROM pg_catalog.pg_replication_slots s
      WHERE s.catalog_xmin IS NOT NULL) h
ORDER BY h.transactions DESC, h.held DESC NULLS LAST;
COMMENT ON VIEW baton.horizon IS 'what keeps rows of this database from being reclaimed, oldest first, and what ends it';
COMMENT ON COLUMN baton.horizon.held IS 'how long already; NULL: PostgreSQL does not know';
COMMENT ON COLUMN baton.horizon.transactions IS 'transactions that were begun since, in the whole server';

-- One line per thing that an operator can do something about. state: ok, warning, error.
CREATE VIEW baton.health AS
WITH status AS (
    SELECT w.worker, w.database, w.pid, w.state, w.since, w.step, w.last_success, w.last_error, w.error,
           -- Most steps are done for one queue after the other, and each that fails is tried again within this time.
           w.last_error > COALESCE(w.last_success, '-infinity')
           OR w.worker <> 'launcher'
           AND pg_catalog.clock_timestamp() - w.last_error
               < interval '10 s' + 2 * pg_catalog.current_setting('pg_baton.retention_naptime', true)::interval
                 + pg_catalog.current_setting('pg_baton.sweep_interval', true)::interval AS failing
    FROM baton_internal.worker_status() w
), worker AS (
    -- how much later than its longest sleep a worker may be
    SELECT k.name, pg_catalog.max(s.pid) AS pid, pg_catalog.max(s.state) AS state,
           (pg_catalog.clock_timestamp() - COALESCE(pg_catalog.max(s.last_success), pg_catalog.max(s.since)))::interval(0) AS age,
           k.sleep
    FROM (VALUES ('mover', pg_catalog.current_setting('pg_baton.mover_naptime', true)::interval),
                 ('retention', pg_catalog.current_setting('pg_baton.retention_naptime', true)::interval)) k (name, sleep)
    LEFT JOIN status s ON s.worker = k.name AND s.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
    GROUP BY k.name, k.sleep
), launcher AS (
    SELECT pg_catalog.max(s.pid) AS pid, pg_catalog.max(s.last_success) FILTER (WHERE s.step = 'databases') AS looked_at,
           pg_catalog.max(s.error) FILTER (WHERE s.failing) AS error
    FROM status s
    WHERE s.worker = 'launcher'
), version AS (
    SELECT e.extversion AS installed, baton_internal.library_version() AS library
    FROM pg_catalog.pg_extension e
    WHERE e.extname = 'pg_baton'
), pin AS (
    -- Time tells of those that PostgreSQL knows it of; of the others, whether nobody is there to let go, or how far behind they are.
    SELECT h.kind, h.who, h.pid, h.held, h.transactions,
           COALESCE(h.held > '5 min', h.pid IS NULL OR h.transactions > 100000) AS long,
           pg_catalog.row_number() OVER (ORDER BY COALESCE(h.held > '5 min', h.pid IS NULL OR h.transactions > 100000) DESC, h.transactions DESC) AS n
    FROM baton.horizon h
), prepared AS (
    SELECT p.gid, pg_catalog.clock_timestamp() - p.prepared AS age
    FROM pg_catalog.pg_prepared_xacts p
    WHERE p.database = pg_catalog.current_database()
    ORDER BY p.prepared
    LIMIT 1
), ring AS (
    SELECT s.name, pg_catalog.sum(pg_catalog.pg_total_relation_size(s.heap)) AS bytes,
           pg_catalog.sum(s.segment_bytes) AS budget, pg_catalog.max(pg_catalog.age(c.relfrozenxid)) AS frozen_age
    FROM baton_internal.visible_segment s
    JOIN pg_catalog.pg_class c ON c.oid = s.heap
    GROUP BY s.name
), published AS (
    SELECT DISTINCT q.name
    FROM baton_internal.visible_queue q
    JOIN pg_catalog.pg_publication_tables t ON t.schemaname = 'baton_data' AND t.tablename LIKE pg_catalog.format('q%s\_%%', q.id)
    JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname AND p.pubdelete
    WHERE NOT q.replicable
)
SELECT 'version' AS item,
       CASE WHEN installed = library THEN 'ok' ELSE 'warning' END AS state,
       CASE WHEN installed = library THEN installed
            ELSE pg_catalog.format('extension %s, library %s: run ALTER EXTENSION pg_baton UPDATE', installed, library)
       END AS detail
FROM version
UNION ALL
SELECT 'switches',
       CASE WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on' THEN 'error'
            WHEN pg_catalog.current_setting('pg_baton.claims', true) IS DISTINCT FROM 'on' THEN 'warning'
            ELSE 'ok'
       END,
       pg_catalog.format('pg_baton.enabled = %s, pg_baton.claims = %s', pg_catalog.current_setting('pg_baton.enabled', true),
                         pg_catalog.current_setting('pg_baton.claims', true))
UNION ALL
SELECT 'launcher',
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'ok'
            WHEN pg_catalog.current_setting('pg_baton.workers', true) IS DISTINCT FROM 'on' THEN 'warning'
            WHEN l.pid IS NULL THEN 'error'
            WHEN l.error IS NOT NULL THEN 'warning'
            ELSE 'ok'
       END,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'starts when this standby is promoted'
            WHEN pg_catalog.current_setting('pg_baton.workers', true) IS DISTINCT FROM 'on'
            THEN 'pg_baton.workers is off: CALL baton.maintain() every few seconds, or work that falls due waits for a claim and segments grow'
            WHEN l.pid IS NULL THEN 'no process; it comes back within 5 s, or the server''s log says why not'
            ELSE COALESCE(l.error, pg_catalog.format('pid %s, looked at the databases %s ago', l.pid,
                                                     (pg_catalog.clock_timestamp() - l.looked_at)::interval(0)))
       END
FROM launcher l
UNION ALL
SELECT w.name,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'ok'
            WHEN w.pid IS NULL THEN 'warning'
            WHEN w.state = 'standing by' THEN 'error'
            WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on' THEN 'ok'
            WHEN w.age > 10 * w.sleep + interval '1 min' THEN 'error'
            WHEN w.age > 3 * w.sleep + interval '10 s' THEN 'warning'
            ELSE 'ok'
       END,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'starts when this standby is promoted'
            WHEN w.pid IS NULL
            THEN CASE w.name WHEN 'mover' THEN 'no process: claims find what is due themselves, later'
                             ELSE 'no process: the mover does its work; without both, segments grow'
                 END || '. See launcher, and the server''s log; by hand: CALL baton.maintain()'
            WHEN w.state = 'standing by' THEN pg_catalog.format('pid %s stands by, the SQL of this database is newer than the library: restart the server', w.pid)
            WHEN pg_catalog.current_setting('pg_baton.enabled', true) IS DISTINCT FROM 'on'
            THEN pg_catalog.format('pid %s stands still, pg_baton.enabled is off', w.pid)
            WHEN w.age > 3 * w.sleep + interval '10 s'
            THEN pg_catalog.format('late: last step %s ago. What it does and waits for: SELECT * FROM pg_stat_activity WHERE pid = %s; pg_terminate_backend(%s) starts it anew',
                                   w.age, w.pid, w.pid)
            ELSE pg_catalog.format('pid %s, last step %s ago', w.pid, w.age)
       END
FROM worker w
UNION ALL
SELECT pg_catalog.format('%s: %s', s.worker, s.step),
       CASE WHEN s.failing THEN 'error' ELSE 'ok' END,
       pg_catalog.concat_ws('; ',
           CASE WHEN s.failing THEN pg_catalog.format('failed %s ago: %s', (pg_catalog.clock_timestamp() - s.last_error)::interval(0), s.error) END,
           CASE WHEN s.last_success IS NULL THEN 'never done' ELSE pg_catalog.format('done %s ago', (pg_catalog.clock_timestamp() - s.last_success)::interval(0)) END,
           CASE WHEN NOT s.failing THEN pg_catalog.format('last failed %s ago: %s', (pg_catalog.clock_timestamp() - s.last_error)::interval(0), s.error) END)
FROM status s
JOIN pg_catalog.pg_database d ON d.oid = s.database AND d.datname = pg_catalog.current_database()
WHERE s.step IS NOT NULL
UNION ALL
SELECT 'queues',
       CASE WHEN pg_catalog.bool_or(NOT q.sound) THEN 'error'
            WHEN pg_catalog.bool_or(NOT q.at_home OR q.paused) THEN 'warning'
            ELSE 'ok'
       END,
       pg_catalog.concat_ws('; ', pg_catalog.format('%s you may look at', pg_catalog.count(*)),
                 'damaged: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE NOT q.sound),
                 'on hold: ' || pg_catalog.string_agg(pg_catalog.format('%s (%s)', q.name, q.held), ', ' ORDER BY q.name) FILTER (WHERE q.held IS NOT NULL),
                 'restored, need baton.adopt: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE NOT q.at_home),
                 'paused: ' || pg_catalog.string_agg(q.name, ', ' ORDER BY q.name) FILTER (WHERE q.paused))
FROM baton_internal.visible_queue q
UNION ALL
SELECT 'views',
       'error',
       pg_catalog.format('no view baton_queue.%I: nobody can use the queue (dropped or renamed)', q.name)
FROM baton_internal.queue q
WHERE pg_catalog.pg_has_role('pg_monitor', 'USAGE')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_class v WHERE v.relname = q.name::name AND v.relnamespace = 'baton_queue'::regnamespace)
UNION ALL
SELECT 'horizon',
       CASE WHEN pg_catalog.bool_or(p.long) THEN 'warning' ELSE 'ok' END,
       CASE WHEN pg_catalog.bool_or(p.long)
            THEN pg_catalog.format('segments wait to be reclaimed for %s%s. What ends it: TABLE baton.horizon',
                                   pg_catalog.string_agg(pg_catalog.format('%s %s (%s)', p.kind, COALESCE('pid ' || CASE WHEN p.kind = 'session' THEN p.pid END, p.who),
                                                                           COALESCE(p.held::text, pg_catalog.format('%s transactions', p.transactions))), ', ' ORDER BY p.n)
                                       FILTER (WHERE p.long AND p.n <= 3),
                                   ' and ' || NULLIF(GREATEST(pg_catalog.count(*) FILTER (WHERE p.long) - 3, 0), 0) || ' more')
            ELSE pg_catalog.format('nothing holds rows back for long; oldest transaction: %s', COALESCE(pg_catalog.max(p.held)::text, 'none'))
       END
FROM pin p
UNION ALL
SELECT 'prepared transactions',
       CASE WHEN p.age > '5 min' THEN 'warning' ELSE 'ok' END,
       CASE WHEN p.gid IS NULL THEN 'none'
            ELSE pg_catalog.format('%s, prepared %s ago: what it enqueued or settled waits for it', p.gid, p.age::interval(0))
       END
FROM (VALUES (1)) one
LEFT JOIN prepared p ON true
UNION ALL
SELECT 'space',
       CASE WHEN pg_catalog.bool_or(r.bytes > 2 * r.budget) THEN 'warning' ELSE 'ok' END,
       COALESCE('above twice its budget: ' || pg_catalog.string_agg(pg_catalog.format('%s (%s)', r.name, pg_catalog.pg_size_pretty(r.bytes)), ', '
                                                                     ORDER BY r.bytes DESC) FILTER (WHERE r.bytes > 2 * r.budget),
                pg_catalog.format('%s in all queues', pg_catalog.pg_size_pretty(COALESCE(pg_catalog.sum(r.bytes), 0))))
FROM ring r
UNION ALL
SELECT 'rotation',
       CASE WHEN pg_catalog.bool_or(q.rotation_held_until > pg_catalog.clock_timestamp() AND r.bytes > r.budget) THEN 'warning' ELSE 'ok' END,
       COALESCE('held by hold_rotation: ' || pg_catalog.string_agg(pg_catalog.format('%s until %s', q.name, q.rotation_held_until::timestamptz(0)), ', '
                                                                   ORDER BY q.name) FILTER (WHERE q.rotation_held_until > pg_catalog.clock_timestamp()),
                'not held')
FROM baton_internal.visible_queue q
LEFT JOIN ring r ON r.name = q.name
UNION ALL
SELECT 'transaction ids',
       CASE WHEN pg_catalog.max(r.frozen_age) > 0.95 * pg_catalog.current_setting('autovacuum_freeze_max_age')::bigint THEN 'warning' ELSE 'ok' END,
       pg_catalog.format('oldest segment: %s transactions of %s', COALESCE(pg_catalog.max(r.frozen_age), 0),
                         pg_catalog.current_setting('autovacuum_freeze_max_age'))
FROM ring r
UNION ALL
SELECT 'publication',
       'error',
       pg_catalog.format('published for deletes without replica identity, so settling is refused: %s',
                         pg_catalog.string_agg(p.name, ', ' ORDER BY p.name))
FROM published p
HAVING pg_catalog.count(*) > 0;
COMMENT ON VIEW baton.health IS 'what an operator should know: one line per subject, state ok, warning or error';
