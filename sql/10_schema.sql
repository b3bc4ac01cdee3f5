-- Schemas. "baton" is the API; "baton_queue" holds one view per queue, which carries the queue's
-- privileges; "baton_data" holds the segments; "baton_internal" is nobody's business but ours.
CREATE SCHEMA baton;
CREATE SCHEMA baton_queue;
CREATE SCHEMA baton_data;
CREATE SCHEMA baton_internal;
COMMENT ON SCHEMA baton IS 'pg_baton: verbs and views';
COMMENT ON SCHEMA baton_queue IS 'pg_baton: one view per queue; GRANT on it is the privilege on the queue';
COMMENT ON SCHEMA baton_data IS 'pg_baton: segments, the physical work tables';
COMMENT ON SCHEMA baton_internal IS 'pg_baton: internals, no public interface';
