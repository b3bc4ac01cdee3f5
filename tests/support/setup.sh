#!/usr/bin/env bash
# setup.sh [base|server|all|chroot]: installs the Debian packages that are missing of what it takes to build (base), to
# run the suites that meet a server (server) or every suite (all, the default), or to make a chroot (chroot). As root it
# installs; otherwise it says what is missing and fails. Says nothing when nothing is.
# PG_CONFIG, or PG_MAJOR, picks the PostgreSQL major; otherwise it is the distribution's own.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

profile=${1:-all}
case $profile in base | server | all | chroot) ;; *) die "usage: setup.sh [base|server|all|chroot]" ;; esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  missing=
  for c in "$PG_CONFIG" make g++; do command -v "$c" >/dev/null || missing="$missing $c"; done
  [ -z "$missing" ] || die "this is not a Debian system; install by hand what is missing:$missing"
  say "setup: not a Debian system, packages are not checked (CONTRIBUTING.md lists them)"
  exit 0
fi

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

distribution_major() { apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1; }

major=${PG_MAJOR:-}
if [ -z "$major" ] && "$PG_CONFIG" --version >/dev/null 2>&1; then major=$(pg_major); fi

wanted() {
  if [ "$profile" = chroot ]; then echo debootstrap; return; fi
  printf '%s\n' g++ gcc make git "postgresql-$major" "postgresql-server-dev-$major"
  if [ "$profile" = base ]; then return; fi
  # not every PostgreSQL that Debian tries out has a pgTAP already
  if [ "$profile" = all ] || apt-cache show "postgresql-$major-pgtap" >/dev/null 2>&1; then echo "postgresql-$major-pgtap"; fi
  printf '%s\n' libtap-parser-sourcehandler-pgtap-perl libipc-run-perl \
    cmake pkg-config doctest-dev libpqxx-dev libcli11-dev nlohmann-json3-dev python3-psycopg python3-psycopg2
  # one test tries it on segments, and does without it where it is not to be had
  if apt-cache show "postgresql-$major-repack" >/dev/null 2>&1; then echo "postgresql-$major-repack"; fi
  # libpq of 19 names it to pkg-config, and its package does not ask for it
  if [ "$major" -ge 19 ]; then echo libcurl4-openssl-dev; fi
  if [ "$profile" = all ]; then printf '%s\n' spin gnuplot-nox; else echo ccache; fi
  # whoever has node and npm from elsewhere keeps them
  command -v node >/dev/null || echo nodejs
  command -v npm >/dev/null || echo npm
}

find_missing() {
  local p
  missing=()
  for p in $(wanted); do is_installed "$p" || missing+=("$p"); done
}

# a PostgreSQL that no package brought (PG_CONFIG=/opt/...) needs none
own_postgres() {
  local owner
  owner=$(command -v "$PG_CONFIG") && ! dpkg-query -S "$(readlink -f "$owner")" >/dev/null 2>&1
}

updated=no
update() { if [ $updated = no ]; then updated=yes; apt-get update -q >&2; fi; }

if [ -z "$major" ] && [ "$profile" != chroot ]; then
  major=$(distribution_major)
  if [ -z "$major" ] && [ "$(id -u)" = 0 ]; then update; major=$(distribution_major); fi
  [ -n "$major" ] || die "which PostgreSQL? Set PG_MAJOR, 15 or later"
fi
[ "$profile" = chroot ] || [ "$major" -ge 15 ] || die "pg_baton needs PostgreSQL 15 or later; this is $major"

find_missing
if own_postgres; then
  kept=()
  for p in ${missing[@]+"${missing[@]}"}; do
    case $p in postgresql-*) ;; *) kept+=("$p") ;; esac
  done
  missing=(${kept[@]+"${kept[@]}"})
fi
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  say "setup: these Debian packages are missing, and only root can install them:"
  say "  apt-get install --no-install-recommends ${missing[*]}"
  exit 1
fi

say "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
update
# the package of a server would otherwise make and start a cluster of its own
drop_in=/etc/postgresql-common/createcluster.d/pg_baton_setup.conf
mkdir -p "${drop_in%/*}"
echo 'create_main_cluster = false' > "$drop_in"
trap 'rm -f "$drop_in"' EXIT
apt-get install -q -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >&2 ||
  die "apt-get could not install: ${missing[*]}"
find_missing
[ ${#missing[@]} -eq 0 ] || die "still missing: ${missing[*]}"
