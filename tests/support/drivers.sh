#!/usr/bin/env bash
# drivers.sh [FILE]...: the smoke tests of tests/drivers, one program per driver, each against the same throwaway
# cluster: *.sh by bash, *.py by the system's python3, *.mjs by node (packages of tests/drivers/package.json); what they
# share is in tests/drivers/lib. They run the worker loops of README.md as they stand there. Exit status 0 = passed,
# 77 = skipped (the driver is not there), anything else = failed.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
if [ "${1:-}" != --inside ]; then
  files=("$@")
  if [ ${#files[@]} = 0 ]; then
    for f in tests/drivers/*.sh tests/drivers/*.py tests/drivers/*.mjs; do [ -f "$f" ] && files+=("$f"); done
  fi
  if [ ${#files[@]} = 0 ]; then echo "drivers: 0 passed, 0 failed"; exit 0; fi
  need_postgres
  exec "$SUPPORT/with_server.sh" --name drivers --fast --no-crash -- "$SUPPORT/drivers.sh" --inside "${files[@]}"
fi
shift

# the npm packages are installed once per package.json, outside of the sources; the programs are run from there
node_dir=$(run_base)/drivers
npm_packages() {
  command -v npm >/dev/null && command -v node >/dev/null || return 1
  mkdir -p "$node_dir"
  if ! cmp -s tests/drivers/package.json "$node_dir/package.json" || [ ! -d "$node_dir/node_modules" ]; then
    cp tests/drivers/package*.json "$node_dir/"
    (cd "$node_dir" && npm install --no-audit --no-fund --no-package-lock --loglevel=error >&2) || return 1
  fi
}
# Debian's modules belong to Debian's python, which need not be the first in PATH
python=/usr/bin/python3
[ -x $python ] || python=python3

passed=0 failed=0 skipped=0
for f in "$@"; do
  status=0
  case $f in
    *.sh) timeout 120 bash "$f" || status=$? ;;
    *.py) timeout 120 $python "$f" || status=$? ;;
    *.mjs)
      if npm_packages; then
        cp -R "$f" tests/drivers/lib "$node_dir/"
        timeout 120 node "$node_dir/$(basename "$f")" || status=$?
      else
        say "npm, or a package of tests/drivers/package.json, is not to be had"
        status=77
      fi ;;
    *) die "no way to run $f" ;;
  esac
  case $status in
    0) passed=$((passed + 1)); echo "ok - $f" ;;
    77) skipped=$((skipped + 1)); echo "skipped - $f" ;;
    *) failed=$((failed + 1)); echo "not ok - $f (status $status)" ;;
  esac
done
echo "drivers: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
