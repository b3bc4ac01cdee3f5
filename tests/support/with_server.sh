#!/usr/bin/env bash
# with_server.sh [--name NAME] [--fast] [--bare] [--no-crash] [-c SETTING=VALUE]... -- COMMAND [ARG]...
#
# Runs COMMAND with PGHOST, PGPORT, PGUSER and PGDATABASE set to a cluster of its own, BATON_CLUSTER to the
# cluster's name and BATON_LOG to its log, ends the cluster and exits as COMMAND did. When COMMAND failed, the log
# is kept in .run. --no-crash: a server process that died of a signal is a failure, however well COMMAND did.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

name=with no_crash=no
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2; shift 2 ;;
    --no-crash) no_crash=yes; shift ;;
    --) shift; break ;;
    -c) options+=("$1" "$2"); shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done
[ $# -gt 0 ] || die "no command"

cluster=$name-$$
crash_marks='was terminated by signal|PANIC:|TRAP:|AddressSanitizer|: runtime error:'
finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  local log crashed=no
  log=$("$SUPPORT/server.sh" log --name "$cluster")
  if [ -f "$log" ] && [ $no_crash = yes ] && grep -qE "$crash_marks" "$log"; then
    crashed=yes
    if [ "$status" = 0 ]; then status=1; fi
  fi
  if [ "$status" != 0 ] && [ -f "$log" ]; then
    cp "$log" "$(run_base)/$name.log"
    if [ $crashed = yes ]; then grep -E "$crash_marks" "$log" | head -n 5 >&2; fi
    say "the server's log: $(run_base)/$name.log"
  fi
  "$SUPPORT/server.sh" stop --name "$cluster" || true
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

exports=$("$SUPPORT/server.sh" start --name "$cluster" ${options[@]+"${options[@]}"})
eval "$exports"
BATON_CLUSTER=$cluster
BATON_LOG=$("$SUPPORT/server.sh" log --name "$cluster")
PATH=$(pg_bindir):$PATH
export BATON_CLUSTER BATON_LOG PATH
cd "$ROOT"
"$@"
