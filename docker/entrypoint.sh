#!/bin/sh
# Makes the cluster at the first start (POSTGRES_PASSWORD is required then), with pg_baton preloaded and created in the
# database `baton`, then becomes the server. Further arguments go to the server.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  if [ -z "${POSTGRES_PASSWORD:-}" ]; then
    echo 'pg_baton: set POSTGRES_PASSWORD for the first start' >&2
    exit 1
  fi
  # a first start that fails half way leaves nothing that looks like a cluster
  trap 'pg_ctl -D "$PGDATA" -s -m immediate stop 2>/dev/null; find "$PGDATA" -mindepth 1 -delete' EXIT
  password_file=$(mktemp)
  printf '%s\n' "$POSTGRES_PASSWORD" > "$password_file"
  initdb -D "$PGDATA" -U postgres -E UTF8 --locale=C.UTF-8 --auth-local=trust --auth-host=scram-sha-256 \
    --pwfile="$password_file" > /dev/null
  rm -f "$password_file"
  {
    echo "shared_preload_libraries = 'pg_baton'"
    echo "listen_addresses = '*'"
    echo "unix_socket_directories = '/tmp'"
    echo "max_prepared_transactions = 10"
  } >> "$PGDATA/postgresql.conf"
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -w -s -o "-c listen_addresses=''" start > /dev/null
  psql -X -q -h /tmp -U postgres -d postgres -c 'CREATE DATABASE baton'
  psql -X -q -h /tmp -U postgres -d baton -c 'CREATE EXTENSION pg_baton'
  pg_ctl -D "$PGDATA" -w -s stop
  trap - EXIT
fi
exec postgres -D "$PGDATA" "$@"
