-- Every slot and every row of a queue against each other. Right under concurrent load: what a first pass suspects is
-- reported only if a second one, with a newer snapshot, finds the same. A row deleted from a segment by plain SQL is
-- reported until the next look at its slot.
CREATE FUNCTION baton.check(queue text) RETURNS TABLE (segment text, problem text, id bigint, detail text)
    AS 'MODULE_PATHNAME', 'baton_check' LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION baton.check IS 'verify slots and rows of a queue against each other; no row: sound';
