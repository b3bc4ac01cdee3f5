#!/usr/bin/env bash
# Throwaway clusters with pg_baton preloaded, each with a name, each on a Unix socket in a folder of its own.
#
#   server.sh start   [--name NAME] [--fast] [--bare] [-c SETTING=VALUE]...   prints the exports for it, and no more
#   server.sh env     [--name NAME]             the same lines
#   server.sh psql    [--name NAME] [ARG]...
#   server.sh restart [--name NAME] [--mode fast|immediate] [-c SETTING=VALUE]...
#   server.sh stop    [--name NAME | --all]     ends it and removes its folder
#   server.sh log     [--name NAME]             the path of its log
#   server.sh list
#
# start builds and stages first. --fast: no fsync, for tests that never pull the plug. --bare: no database `baton`
# and no extension. The clusters trust everybody who can enter their folder, which only their user and root can.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

command=${1:-}
[ $# -gt 0 ] && shift
name=server fast=no bare=no all=no mode=fast
settings=()
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2; shift 2 ;;
    --fast) fast=yes; shift ;;
    --bare) bare=yes; shift ;;
    --all) all=yes; shift ;;
    --mode) mode=$2; shift 2 ;;
    -c) if [ "$command" = psql ]; then break; fi; settings+=("$2"); shift 2 ;;
    --) shift; break ;;
    *) if [ "$command" = psql ]; then break; fi; die "unknown argument: $1" ;;
  esac
done
case $name in '' | *[!a-zA-Z0-9_-]*) die "a cluster's name has letters, digits, - and _: $name" ;; esac

need_postgres
base=$(run_base)
bin=$(pg_bindir)
dir=$base/clusters/$name

is_running() { [ -f "$1/data/postmaster.pid" ] && as_server "$bin/pg_ctl" status -s -D "$1/data" >/dev/null 2>&1; }

socket_dir() { if [ -f "$dir/socket" ]; then cat "$dir/socket"; else printf '%s\n' "$dir"; fi; }

print_env() {
  local database=baton
  [ -f "$dir/bare" ] && database=postgres
  printf 'export PGHOST=%q PGPORT=5432 PGUSER=postgres PGDATABASE=%s\n' "$(socket_dir)" "$database"
}

pg_ctl() {
  as_server "$bin/pg_ctl" -s -w -t 120 -D "$dir/data" -l "$dir/log" "$@" >&2 9>&- || {
    say "pg_ctl $* failed; the end of the log:"
    tail -n 20 "$dir/log" >&2 || true
    return 1
  }
}

run_psql() { as_server env PGHOST="$(socket_dir)" PGPORT=5432 PGUSER=postgres "$bin/psql" -X "$@"; }

add_settings() { # SETTING=VALUE...
  local s
  for s in "$@"; do
    printf '%s = %s\n' "${s%%=*}" "$(conf_quote "${s#*=}")" >> "$dir/data/postgresql.conf"
  done
}

remove() { # the folder of a stopped cluster, and its socket folder if it has another
  if [ -s "$1/socket" ]; then rm -rf -- "$(cat "$1/socket")"; fi
  rm -rf -- "$1"
}

start() {
  if is_running "$dir"; then
    say "cluster $name is running already (make server-stop, or server.sh stop, ends it)"
    print_env
    return
  fi
  remove "$dir"
  mkdir -p "$dir/data"
  stage_into "$dir/stage"
  chmod 700 "$dir" "$dir/data"
  # a socket's path may have 107 bytes
  if [ "${#dir}" -gt 85 ]; then
    mktemp -d "${TMPDIR:-/tmp}/baton.XXXXXX" > "$dir/socket"
    give_to_server "$(cat "$dir/socket")"
  fi
  [ $bare = yes ] && touch "$dir/bare"
  : > "$dir/log"
  give_to_server "$dir"
  as_server "$bin/initdb" -D "$dir/data" -U postgres -A trust --no-sync --no-instructions \
    -E UTF8 --locale=C.UTF-8 > "$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; die "initdb failed"; }
  {
    server_settings "$dir/stage"
    echo "unix_socket_directories = $(conf_quote "$(socket_dir)")"
    if [ $fast = yes ]; then echo "fsync = off"; fi
  } >> "$dir/data/postgresql.conf"
  add_settings ${settings[@]+"${settings[@]}"}
  pg_ctl start
  if [ $bare = no ]; then
    run_psql -q -d postgres -c 'CREATE DATABASE baton' >&2
    run_psql -q -d baton -c 'CREATE EXTENSION pg_baton' >&2
  fi
  print_env
}

stop() { # FOLDER
  if is_running "$1"; then
    as_server "$bin/pg_ctl" stop -s -w -t 60 -m fast -D "$1/data" >&2 ||
      as_server "$bin/pg_ctl" stop -s -w -t 60 -m immediate -D "$1/data" >&2
  fi
  remove "$1"
}

case $command in
  start)
    # Not `start || ...`: that would let it go on after a step that failed, a build for one.
    trap '[ $? = 0 ] || say "cluster $name: not started; its log was $dir/log"' EXIT
    start ;;
  env) is_running "$dir" || die "cluster $name is not running"; print_env ;;
  psql)
    is_running "$dir" || die "cluster $name is not running"
    eval "$(print_env)"
    exec "$bin/psql" -X "$@" ;;
  restart)
    [ -d "$dir/data" ] || die "there is no cluster $name"
    add_settings ${settings[@]+"${settings[@]}"}
    pg_ctl restart -m "$mode" ;;
  stop)
    if [ $all = yes ]; then
      for d in "$base"/clusters/*/; do [ -d "$d" ] && stop "${d%/}"; done
    elif [ -d "$dir" ]; then
      stop "$dir"
    else
      say "there is no cluster $name"
    fi ;;
  log) printf '%s\n' "$dir/log" ;;
  list) for d in "$base"/clusters/*/; do if is_running "${d%/}"; then basename "$d"; fi; done ;;
  *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
