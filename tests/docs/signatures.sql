-- Every public function and procedure as docs/sql-reference.md writes it: name, signature.
SELECT p.proname,
       pg_catalog.format(
           '%sbaton.%s(%s)%s',
           CASE p.prokind WHEN 'p' THEN 'CALL ' ELSE '' END, p.proname,
           pg_catalog.regexp_replace(
               pg_catalog.regexp_replace(
                   pg_catalog.regexp_replace(pg_catalog.pg_get_function_arguments(p.oid), '::[a-z ]+(\[\])?(?=,|$)', '', 'g'),
                   '\mIN ', '', 'g'),
               ' DEFAULT ', ' = ', 'g'),
           ' → ' || pg_catalog.pg_get_function_result(p.oid))
FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'baton'::pg_catalog.regnamespace
ORDER BY p.proname;
