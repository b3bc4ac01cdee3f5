CREATE FUNCTION baton.explain_message(queue text, id bigint)
    RETURNS TABLE (obstacle text, detail text, pids integer[], until timestamptz)
    AS 'MODULE_PATHNAME', 'baton_explain_message' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 2;
COMMENT ON FUNCTION baton.explain_message IS 'why a message does not run: one row per obstacle, with the sessions behind it; none: it can be claimed now';
