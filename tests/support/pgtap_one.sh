#!/usr/bin/env bash
# pgtap_one.sh FILE: what prove runs for each file: makes a database with pg_baton and pgTAP, runs FILE in it, drops it.
# The output is TAP. A file that ends in an error fails, also when its plan was met.

set -uo pipefail
file=$1
database=baton_test_$(basename "$file" .sql | tr -c 'a-zA-Z0-9_\n' _)_$$
export PGDATABASE=${PGDATABASE:-postgres} PGOPTIONS="-c client_min_messages=warning ${PGOPTIONS:-}"
quiet=(psql -X -q -v ON_ERROR_STOP=1)

"${quiet[@]}" -c "CREATE DATABASE $database" || exit 1
drop() { "${quiet[@]}" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null 2>&1; }
trap drop EXIT
"${quiet[@]}" -d "$database" -c 'CREATE EXTENSION pg_baton' -c 'CREATE EXTENSION pgtap' || exit 1
psql -X -q -A -t -P pager=off -v ON_ERROR_STOP=1 -d "$database" -f "$file"
