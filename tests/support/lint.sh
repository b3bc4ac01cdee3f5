#!/usr/bin/env bash
# lint.sh: the rules of the sources that a compiler does not know (CONTRIBUTING.md says why). Fails when one is broken.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# hosts of this machine's package sources: no file of the project may name one
hosts=$(
  { apt-get indextargets --format '$(SITE)' || true; npm config get registry || true; } 2>/dev/null |
    sed -n 's#^[a-z+]*://\([^/:@]*@\)\{0,1\}\([^/:]*\).*#\2#p' | sort -u | tr '\n' ' '
)
source_files | perl "$SUPPORT/lint.pl" "$ROOT" "$hosts"
