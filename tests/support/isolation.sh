#!/usr/bin/env bash
# isolation.sh [--accept] [SPEC]...: the specs of tests/isolation (all, or those named) under pg_isolation_regress, on a
# fresh cluster, in a database with tests/isolation/helpers.sql. --accept makes what came out the expected output, to be
# read before it is committed.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

if [ "${1:-}" = --inside ]; then # under with_server.sh
  shift
  export PGTZ=UTC PGDATESTYLE=ISO
  psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE DATABASE baton_isolation'
  psql -X -q -v ON_ERROR_STOP=1 -d baton_isolation -f "$BATON_WORK/helpers.sql"
  as_server env PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER="$PGUSER" \
    "$(pgxs_src)/test/isolation/pg_isolation_regress" --inputdir="$BATON_WORK" --outputdir="$BATON_WORK" \
    --bindir="$(pg_bindir)" --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" --dbname=baton_isolation \
    --use-existing "$@"
  exit
fi

accept=no
if [ "${1:-}" = --accept ]; then accept=yes; shift; fi
need_postgres
[ -x "$(pgxs_src)/test/isolation/pg_isolation_regress" ] || die "this PostgreSQL has no pg_isolation_regress"
cd "$ROOT"
specs=()
for s in "$@"; do specs+=("$(basename "$s" .spec)"); done
if [ ${#specs[@]} = 0 ]; then
  for f in tests/isolation/specs/*.spec; do [ -f "$f" ] && specs+=("$(basename "$f" .spec)"); done
fi
if [ ${#specs[@]} = 0 ]; then echo "isolation: 0 passed, 0 failed"; exit 0; fi

# a copy that the server's user can read and write
base=$(run_base)
work=$base/isolation.$$
cp -R tests/isolation "$work"
mkdir -p "$work/expected"
for s in "${specs[@]}"; do [ -f "$work/expected/$s.out" ] || : > "$work/expected/$s.out"; done
give_to_server "$work"
export BATON_WORK=$work

# Nothing may happen that no session does: no workers, no vacuum, and no sweep that a claim would do by itself.
settings=(-c pg_baton.workers=off -c autovacuum=off -c pg_baton.sweep_interval=1h -c pg_baton.rotate_min_interval=0
  -c pg_baton.rotate_grace=0)
run=("$SUPPORT/with_server.sh" --name isolation --fast --no-crash --bare "${settings[@]}" --
  "$SUPPORT/isolation.sh" --inside "${specs[@]}")
if [ $accept = yes ]; then
  "${run[@]}" > "$base/isolation.out" 2>&1 || true
  mkdir -p tests/isolation/expected
  for s in "${specs[@]}"; do
    [ -f "$work/results/$s.out" ] || die "$s left no output; see $base/isolation.out"
    cp "$work/results/$s.out" "tests/isolation/expected/$s.out"
    echo "tests/isolation/expected/$s.out"
  done
  rm -rf "$work"
  exit 0
fi

status=0
"${run[@]}" | grep -v '^ALTER DATABASE$\|^=* *$\|^The differences that\|^file "\|^above is saved' | tee "$base/isolation.out" || status=$?
failed=$(grep -cE '\.\.\. FAILED|^not ok ' "$base/isolation.out" || true)
if [ "$status" != 0 ]; then
  if [ -f "$work/regression.diffs" ]; then
    cat "$work/regression.diffs"
    cp "$work/regression.diffs" "$base/isolation.diffs"
  fi
  [ "$failed" -gt 0 ] || failed=${#specs[@]}
fi
rm -rf "$work"
echo "isolation: $((${#specs[@]} - failed)) passed, $failed failed"
exit "$status"
