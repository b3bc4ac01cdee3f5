#!/usr/bin/env bash
# cmake_test.sh core [sanitize] | client: builds with CMake under .run and runs the suites with CTest; those of the
# client against a throwaway cluster.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

what=${1:-core}
sanitize=OFF
[ "${2:-}" = sanitize ] && sanitize=ON
command -v cmake >/dev/null || die "there is no cmake ('make setup')"
build=${BATON_RUN_DIR:-$ROOT/.run}/build-$what${2:+-$2}
client=OFF
[ "$what" = client ] && client=ON
mkdir -p "$build"
(
  flock 9
  cmake -S "$ROOT" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBATON_BUILD_CLIENT=$client -DBATON_SANITIZE=$sanitize \
    -DCMAKE_RULE_MESSAGES=OFF -DCMAKE_TARGET_MESSAGES=OFF \
    -DBATON_WERROR="$([ "${CI:-}" = true ] && echo ON || echo OFF)" > "$build/configure.log" 2>&1 9>&- ||
    { cat "$build/configure.log"; exit 1; }
  plain_make -C "$build" --no-print-directory -s -j"$(nproc)" >&2 9>&-
) 9> "$build/lock"

run=(ctest --test-dir "$build" --output-on-failure --no-tests=ignore -L "$what")
if [ "$what" = client ]; then
  if [ -z "$(ctest --test-dir "$build" -N -L client | sed -n '/Test *#/p')" ]; then
    echo "client: 0 passed, 0 failed"
    exit 0
  fi
  exec "$SUPPORT/with_server.sh" --name client --fast --no-crash -- "${run[@]}"
fi
exec "${run[@]}"
