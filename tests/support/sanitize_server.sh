#!/usr/bin/env bash
# sanitize_server.sh: builds the extension under the address and undefined-behaviour sanitizers, in a copy of the
# sources, and runs the pgTAP and isolation suites on the stock server with it. A report in the server's log fails the run.
#
# Preloading the address sanitizer alone hangs the server and psql for ever: a library that they link calls malloc from
# a constructor before the sanitizer is ready. A library that is initialised first and calls malloc once cures that.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

need_postgres
base=$(run_base)
copy=$base/sanitize
copy_sources "$copy"
first=$copy/first.so
printf '#include <stdlib.h>\n__attribute__((constructor)) static void first(void) { free(malloc(1)); }\n' > "$copy/first.c"
gcc -shared -fPIC -Wl,-z,initfirst -o "$first" "$copy/first.c"
chmod -R a+rX "$copy"

export SANITIZE=1
BATON_SERVER_ENV="LD_PRELOAD=$(gcc -print-file-name=libasan.so):$first:$(gcc -print-file-name=libubsan.so)"
BATON_SERVER_ENV+=" ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1"
export BATON_SERVER_ENV
status=0
"$copy/tests/support/pgtap.sh" || status=1
"$copy/tests/support/isolation.sh" || status=1
if [ $status = 0 ]; then rm -rf "$copy"; fi
exit $status
