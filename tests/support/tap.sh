#!/usr/bin/env bash
# tap.sh [FILE]...: the TAP tests of tests/tap, with PostgreSQL's own perl modules and tests/support/perl, as the
# server's user, in a scratch folder that stays in .run when a test failed. JOBS=n runs n at a time.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

need_postgres
cd "$ROOT"
files=("$@")
if [ ${#files[@]} = 0 ]; then for f in tests/tap/*.pl; do [ -f "$f" ] && files+=("$f"); done; fi
if [ ${#files[@]} = 0 ]; then echo "tap: 0 passed, 0 failed"; exit 0; fi
modules=$(pgxs_src)/test/perl
[ -d "$modules/PostgreSQL/Test" ] || die "this PostgreSQL has no perl modules for tests ($modules)"
perl -MIPC::Run -e 1 2>/dev/null || die "perl lacks IPC::Run (Debian: libipc-run-perl)"

base=$(run_base)
work=$base/tap.$$
mkdir -p "$work/tests/support"
cp -R tests/tap "$work/tests/tap"
cp -R tests/upgrade "$work/tests/upgrade"
cp -R tests/support/perl "$work/tests/support/perl"
stage_into "$work/stage"
# nodes choose their own listen_addresses and wal_level
server_settings "$work/stage" | grep -v '^listen_addresses\|^wal_level' > "$work/temp.conf"
give_to_server "$work"

status=0
as_server env PATH="$(pg_bindir):$PATH" PG_REGRESS="$(pgxs_src)/test/regress/pg_regress" TEMP_CONFIG="$work/temp.conf" \
  TESTDIR="$work" TESTDATADIR="$work/tmp_check" TESTLOGDIR="$work/tmp_check/log" PGPORT=65432 \
  sh -c 'cd "$1" && shift && exec prove --timer "$@"' sh "$work" \
  --jobs "${JOBS:-1}" -I "$modules" -I "$work/tests/support/perl" "${files[@]}" || status=$?
if [ "$status" = 0 ]; then
  rm -rf "$work"
else
  rm -rf "$base/tap.failed"
  mv "$work" "$base/tap.failed"
  say "tap: logs and data are in $base/tap.failed/tmp_check"
fi
exit "$status"
