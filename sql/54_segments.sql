-- What keeps a table from being truncated, as the workers would decide now; one row, or none for other tables.
CREATE FUNCTION baton_internal.kept_by(segment regclass) RETURNS TABLE (condition text, queue_id integer, until timestamptz)
    AS 'MODULE_PATHNAME', 'baton_kept_by' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;

-- Tables that all queues share and that are not empty. For those who may look at everything.
CREATE VIEW baton_internal.visible_shared WITH (security_barrier) AS
SELECT pg_catalog.split_part(c.relname::text COLLATE "default", '_', 1) AS kind, pg_catalog.split_part(c.relname, '_', 2)::integer AS n, c.oid::regclass AS heap
FROM pg_catalog.pg_class c
WHERE c.relnamespace = 'baton_data'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(retained|later|long)_\d+$'
  AND pg_catalog.pg_relation_size(c.oid) > 0
  AND pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW baton.segments AS
SELECT t.queue, t.segment, t.state, t.unsettled, t.settled,
       pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(t.heap)) AS messages_size,
       pg_catalog.pg_size_pretty(pg_catalog.pg_indexes_size(t.heap)) AS map_size,
       t.open_seq, t.epoch,
       CASE k.condition
            WHEN 'horizon' THEN 'horizon: ' || COALESCE((SELECT pg_catalog.concat_ws(' ', h.kind, COALESCE('pid ' || h.pid, h.who)) FROM baton.horizon h LIMIT 1), 'nobody by now')
            ELSE pg_catalog.concat_ws(' ', k.condition,
                                      'of ' || COALESCE(q.name COLLATE "default", 'a dropped queue ' || k.queue_id),
                                      'until ' || CASE WHEN k.condition <> 'hold' THEN k.until::timestamptz(0) END)
       END AS kept_by
FROM (SELECT s.name AS queue, s.segment,
             CASE WHEN m.open_seq = 0 AND c.unsettled + c.settled = 0 THEN 'empty'
                  WHEN m.open_seq > 0 AND m.open_seq = pg_catalog.max(m.open_seq) OVER (PARTITION BY s.queue_id) THEN 'writing'
                  WHEN c.unsettled > 0 THEN 'draining'
                  ELSE 'drained'
             END AS state,
             c.unsettled, c.settled, s.heap, m.open_seq, m.epoch
      FROM baton_internal.visible_segment s
      CROSS JOIN LATERAL baton_internal.map_meta(s.heap) m
      CROSS JOIN LATERAL (SELECT k.ready + k.scheduled + k.claimed + k.settling + k.uncommitted + k.inactive + k.expired AS unsettled, k.settled
                          FROM baton_internal.map_counts(s.heap) k) c
      UNION ALL
      SELECT NULL, s.n, s.kind, NULL, NULL, s.heap, NULL, NULL
      FROM baton_internal.visible_shared s) t
CROSS JOIN LATERAL baton_internal.kept_by(t.heap) k
LEFT JOIN baton_internal.queue q ON q.id = k.queue_id
ORDER BY t.queue, CASE WHEN t.queue IS NULL THEN t.state END, t.segment;
COMMENT ON VIEW baton.segments IS 'the ring of each queue: where new messages go, what is left in older segments, what waits to be reclaimed; and the tables of all queues';
COMMENT ON COLUMN baton.segments.queue IS 'NULL: a table that all queues share, named by its state';
COMMENT ON COLUMN baton.segments.kept_by IS 'why it is not truncated; nothing: it will be at the next opportunity';
