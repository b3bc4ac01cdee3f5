#!/usr/bin/env bash
# pgtap.sh [--installcheck] [FILE]...: the pgTAP files of tests/pgtap, each in a database of its own, on a fresh
# cluster, or, with --installcheck, on the running server that PGHOST, PGPORT, ... name. JOBS=n runs n at a time.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

installcheck=no
if [ "${1:-}" = --installcheck ]; then installcheck=yes; shift; fi
cd "$ROOT"
files=("$@")
if [ ${#files[@]} = 0 ]; then for f in tests/pgtap/*.sql; do [ -f "$f" ] && files+=("$f"); done; fi
if [ ${#files[@]} = 0 ]; then echo "pgtap: 0 passed, 0 failed"; exit 0; fi
command -v prove >/dev/null || die "there is no prove (a part of perl)"

run=(prove --timer --failures --comments --jobs "${JOBS:-1}" --exec "bash $SUPPORT/pgtap_one.sh" "${files[@]}")
if [ $installcheck = yes ]; then exec "${run[@]}"; fi
need_postgres
exec "$SUPPORT/with_server.sh" --name pgtap --fast --no-crash --bare -c max_worker_processes=24 -- "${run[@]}"
