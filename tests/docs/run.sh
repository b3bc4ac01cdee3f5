#!/usr/bin/env bash
# run.sh [FILE]...: the documents against a cluster of their own: reference.pl compares, run.pl runs every block.
set -euo pipefail

cd "$(dirname "$0")/../.."
exec tests/support/with_server.sh --name docs --fast --no-crash -- \
  sh -c 'perl tests/docs/reference.pl && exec perl tests/docs/run.pl "$@"' sh "$@"
