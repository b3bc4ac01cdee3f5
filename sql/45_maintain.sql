-- The workers' steps by hand, for those who run without workers (pg_baton.workers = off) or do not want to wait. Not inside a
-- transaction block: each step has a transaction of its own, and a step that fails (a WARNING) does not stop the others.
CREATE PROCEDURE baton.maintain(queue text DEFAULT NULL)
    AS 'MODULE_PATHNAME', 'baton_maintain' LANGUAGE C;
COMMENT ON PROCEDURE baton.maintain IS 'do the workers'' work now, for one queue or for all of the caller''s';
