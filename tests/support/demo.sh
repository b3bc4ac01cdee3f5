#!/usr/bin/env bash
# demo.sh [ARG]...: the main job, on the cluster that PGHOST, PGPORT, PGUSER and PGDATABASE name: builds
# client/examples/demo, fetches the webhook payloads when npm can, runs both. Arguments go to baton_demo.
# The last line is `demo: ok: ...` or `demo: FAILED: ...`, and the exit status says the same.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

build=$ROOT/build-demo
package=@octokit/webhooks-examples
version=7.6.1

failed() { echo "demo: FAILED: $*"; exit 1; }

has_tools() { command -v cmake >/dev/null && command -v pkg-config >/dev/null && pkg-config --exists libpqxx; }
has_tools || "$SUPPORT/setup.sh" all || failed "cmake, pkg-config and libpqxx are needed"

mkdir -p "$build"
{ cmake -S "$ROOT/client/examples/demo" -B "$build" && cmake --build "$build" -j "$(nproc)"; } > "$build/log" 2>&1 || {
  tail -n 20 "$build/log" >&2
  failed "client/examples/demo did not build"
}

# Kept for the next time. Scripts of packages are not run: these are data.
webhooks=$build/node_modules/$package/api.github.com
if [ ! -d "$webhooks" ] && command -v npm >/dev/null; then
  timeout 120 npm install --prefix "$build" --no-save --no-audit --no-fund --ignore-scripts --loglevel error \
    "$package@$version" > "$build/npm.log" 2>&1 || true
fi
if [ -d "$webhooks" ]; then
  arguments=(--webhooks "$webhooks")
elif command -v npm >/dev/null; then
  arguments=(--skipped "npm could not fetch $package $version (see build-demo/npm.log)")
else
  arguments=(--skipped "there is no npm to fetch $package $version with")
fi

# The whole takes a minute; a hang must not look like patience.
status=0
timeout --kill-after=10 400 "$build/baton_demo" run "${arguments[@]}" "$@" || status=$?
if [ "$status" = 124 ] || [ "$status" = 137 ]; then failed "no end after 400 s"; fi
if [ "$status" -gt 1 ]; then failed "baton_demo ended with status $status"; fi
exit "$status"
