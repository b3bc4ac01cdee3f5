-- The lease map: an index access method that answers no query. It keeps one 64-byte slot per message.
CREATE FUNCTION baton_internal.lease_handler(internal) RETURNS index_am_handler
    AS 'MODULE_PATHNAME', 'baton_lease_handler' LANGUAGE C STRICT;
CREATE ACCESS METHOD baton_lease TYPE INDEX HANDLER baton_internal.lease_handler;
COMMENT ON ACCESS METHOD baton_lease IS 'pg_baton: the lease map of a segment';

-- One class per column type of the map's columns. They have no operators: nothing is ever searched.
CREATE OPERATOR CLASS baton_internal.lease_int8 DEFAULT FOR TYPE pg_catalog.int8 USING baton_lease AS STORAGE pg_catalog.int8;
CREATE OPERATOR CLASS baton_internal.lease_int4 DEFAULT FOR TYPE pg_catalog.int4 USING baton_lease AS STORAGE pg_catalog.int4;
CREATE OPERATOR CLASS baton_internal.lease_timestamptz DEFAULT FOR TYPE pg_catalog.timestamptz USING baton_lease AS STORAGE pg_catalog.timestamptz;
CREATE OPERATOR CLASS baton_internal.lease_text DEFAULT FOR TYPE pg_catalog.text USING baton_lease AS STORAGE pg_catalog.text;
