#!/usr/bin/env bash
# check.sh [SUITE]...: builds with warnings as errors, then runs every suite, or those named; says at the end which
# passed. Fails when any did not.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

export CI=true
cd "$ROOT"
all=" build lint core model pgtap isolation tap drivers docs client "
for name in "$@"; do case $all in *" $name "*) ;; *) die "there is no suite $name, but:$all" ;; esac; done
wanted=" ${*:-$all} "
passed=0 failed=0
summary=()
suite() { # NAME COMMAND...
  local name=$1 from=$SECONDS result=ok
  shift
  case $wanted in *" $name "*) ;; *) return ;; esac
  printf '\n=== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    result=FAILED
  fi
  summary+=("$(printf '%-12s %-6s %4d s' "$name" "$result" $((SECONDS - from)))")
}

suite build plain_make --no-print-directory -s -j"$(nproc)" all
suite lint "$SUPPORT/lint.sh"
suite core "$SUPPORT/cmake_test.sh" core
suite model tests/model/run.sh
suite pgtap "$SUPPORT/pgtap.sh"
suite isolation "$SUPPORT/isolation.sh"
suite tap "$SUPPORT/tap.sh"
suite drivers "$SUPPORT/drivers.sh"
suite docs tests/docs/run.sh
suite client "$SUPPORT/cmake_test.sh" client

printf '\n=== summary\n'
printf '%s\n' "${summary[@]}"
echo "check: $passed passed, $failed failed"
[ $failed = 0 ]
