# shellcheck shell=bash
# What the scripts of this folder share: where things are, and how to run something as the user PostgreSQL accepts.
# Sourced, never run. PostgreSQL refuses to run as root, so as root everything of the server's is run as `postgres`.

set -euo pipefail
umask 022

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SUPPORT=$ROOT/tests/support
export PG_CONFIG=${PG_CONFIG:-pg_config}
SERVER_USER=postgres

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

pg_bindir() { "$PG_CONFIG" --bindir; }
pg_major() { "$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/'; }
pgxs_src() { dirname "$(dirname "$("$PG_CONFIG" --pgxs)")"; }

need_postgres() {
  "$PG_CONFIG" --version >/dev/null 2>&1 || die "'$PG_CONFIG' does not run: 'make setup', or set PG_CONFIG"
  [ -x "$(pg_bindir)/initdb" ] || die "there is no initdb beside '$PG_CONFIG': 'make setup' installs the server"
  if [ "$(id -u)" = 0 ] && ! id "$SERVER_USER" >/dev/null 2>&1; then
    die "as root, the server runs as the user $SERVER_USER, and there is none"
  fi
}

# as_server COMMAND...: as the server's user, in a folder that it may enter. BATON_SERVER_ENV: NAME=VALUE words for its
# environment (what a sanitizer wants preloaded).
as_server() {
  local -a more
  read -r -a more <<< "${BATON_SERVER_ENV:-}"
  if [ "$(id -u)" = 0 ]; then
    (cd / && exec runuser -u "$SERVER_USER" -- env HOME=/nonexistent USER="$SERVER_USER" LOGNAME="$SERVER_USER" ${more[@]+"${more[@]}"} "$@")
  else
    (cd / && exec env ${more[@]+"${more[@]}"} "$@")
  fi
}

give_to_server() { if [ "$(id -u)" = 0 ]; then chown -R "$SERVER_USER:" "$@"; fi; }

# The folder for everything throwaway: .run in the checkout, or, where the server's user cannot enter the checkout, a
# temporary one whose name is kept in .run/elsewhere. BATON_RUN_DIR overrides.
run_base() {
  local run=${BATON_RUN_DIR:-$ROOT/.run} other
  mkdir -p "$run"
  run=$(cd "$run" && pwd)
  if as_server test -x "$run" 2>/dev/null; then
    printf '%s\n' "$run"
    return
  fi
  if [ -s "$run/elsewhere" ] && [ -d "$(cat "$run/elsewhere")" ]; then
    cat "$run/elsewhere"
    return
  fi
  other=$(mktemp -d "${TMPDIR:-/tmp}/pg_baton.XXXXXX")
  chmod 755 "$other"
  printf '%s\n' "$other" > "$run/elsewhere"
  printf '%s\n' "$other"
}

# the sources as they lie in the checkout, committed or not, one a line
source_files() {
  (
    cd "$ROOT"
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
      git ls-files -co --exclude-standard
    else
      find . -type f -not -path './.run/*' -not -path './build*' -not -name '*.[oda]' -not -name '*.so' -not -name 'pg_baton--*.sql' | sed 's,^\./,,'
    fi | sort -u | while IFS= read -r f; do if [ -e "$f" ]; then printf '%s\n' "$f"; fi; done
  )
}

copy_sources() { # to FOLDER, which is made anew
  rm -rf "$1"
  mkdir -p "$1"
  source_files | tar -C "$ROOT" --no-recursion -T - -cf - | tar -C "$1" --no-same-owner -xf -
}

# make, as if called from a shell
plain_make() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES make "$@"; }

# stage_into FOLDER: build, install under .run/stage, and copy that to FOLDER, so that a server under test keeps the
# files it was started with while somebody builds again. One at a time per run folder.
stage_into() {
  local base stage
  base=$(run_base)
  stage=$base/stage
  (
    flock 9
    plain_make -C "$ROOT" --no-print-directory -s -j"$(nproc)" all >&2 || die "the build failed"
    rm -rf "$stage"
    plain_make -C "$ROOT" --no-print-directory -s install DESTDIR="$stage" >&2 || die "the installation failed"
    rm -rf "$1"
    cp -R "$stage" "$1"
  ) 9> "$base/lock"
}

conf_quote() { printf "'%s'" "${1//\'/\'\'}"; }

# server_settings STAGE: the lines of postgresql.conf that make a server load pg_baton from STAGE
server_settings() {
  local stage=$1 lib share
  lib=$("$PG_CONFIG" --pkglibdir)
  share=$("$PG_CONFIG" --sharedir)
  if [ "$(pg_major)" -ge 18 ]; then
    echo "extension_control_path = $(conf_quote "$stage$share:\$system")"
    echo "dynamic_library_path = $(conf_quote "$stage$lib:\$libdir")"
  elif [ -n "$(as_server "$(pg_bindir)/postgres" --describe-config | sed -n '/^extension_destdir/p')" ]; then
    echo "extension_destdir = $(conf_quote "$stage")"
    echo "dynamic_library_path = $(conf_quote "$stage$lib:\$libdir")"
  elif [ -e "$lib/pg_baton.so" ]; then
    say "this PostgreSQL cannot load a staged extension: using the installed pg_baton, run 'make install' after a build"
  else
    die "this PostgreSQL cannot load a staged extension (no extension_destdir before 18): run 'make install' first"
  fi
  cat <<'CONF'
shared_preload_libraries = 'pg_baton'
listen_addresses = ''
max_connections = 200
max_prepared_transactions = 10
wal_level = logical
log_line_prefix = '%m [%p] %q%a '
CONF
}
