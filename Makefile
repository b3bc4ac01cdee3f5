# pg_baton: the server extension, built by PGXS against any PostgreSQL from 15 on.
#
#   make && make install            for people who have PostgreSQL already (PG_CONFIG=... picks one)
#   make demo | server | check      for a fresh Debian: set-up, build, throwaway cluster, work, stop
#   make help                       all targets
#
# Two halves, so that the set-up needs no PostgreSQL: the development goals call scripts in tests/support, which
# install what is missing and then call make again for the PGXS half. Nothing there touches the system's PostgreSQL
# folders: the extension is installed under .run/ and the throwaway clusters are pointed at it.

EXTENSION      = extension/pg_baton
BATON_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" $(EXTENSION).control)
SUPPORT        = tests/support
export PG_CONFIG ?= pg_config

DEV_GOALS = help setup demo demo-pinned bench bench-pinned bench-later bench-due bench-lapse bench-pressure server server-stop check lint core-test client-test \
            drivers docs model pgtap isolation tap dist sanitize sanitize-server
PGXS_GOALS = all install uninstall clean distclean maintainer-clean installcheck installdirs
CHECK_MAJORS = check-pg15 check-pg17 check-pg18 check-pg19
SERVER_SUITES = build core pgtap isolation tap drivers docs client
DEV_GOALS += $(CHECK_MAJORS) remove-chroots
.PHONY: $(DEV_GOALS) $(PGXS_GOALS)

all:

ifneq ($(filter $(DEV_GOALS),$(MAKECMDGOALS)),)
# --- development ---------------------------------------------------------------------------------------------

# a PGXS goal named together with a development goal
$(PGXS_GOALS):
	@$(MAKE) --no-print-directory $@

#: help           this list
help:
	@sed -n 's/^#: *//p' $(firstword $(MAKEFILE_LIST))

#: all            build the extension (PG_CONFIG=... picks the server)
#: install        install it (DESTDIR=... stages)
#: installcheck   pgTAP tests against the running server that PGHOST, PGPORT, ... name
#: setup          install the Debian packages that are missing (as root)
setup:
	@$(SUPPORT)/setup.sh

#: demo           the main job on a throwaway cluster
demo:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name demo -- $(SUPPORT)/demo.sh

#: demo-pinned    throughput per tenth, pg_baton and the textbook queue, while a snapshot is held
demo-pinned bench-pinned:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name pinned -- perl bench/run.pl --pinned $(BENCH_ARGS)

#: bench          the workloads beside the textbook queue      (BENCH_ARGS="..." for bench/run.pl)
bench:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name bench -- perl bench/run.pl $(BENCH_ARGS)

#: bench-later    what scheduled messages cost                (BENCH_ARGS="--scheduled N --wave N")
bench-later:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name later -- perl bench/later.pl $(BENCH_ARGS)

#: bench-due bench-lapse      how late messages are that wait for their due time in their slots    (BENCH_ARGS="--messages N --seconds S")
bench-due:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name due -- perl bench/due.pl $(BENCH_ARGS)

#: bench-pressure disk, dead rows and claims under a pinned snapshot, ten minutes (BENCH_ARGS="--seconds N --standby off")
bench-pressure:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name pressure -- perl bench/pressure.pl $(BENCH_ARGS)

#: bench-lapse    how messages come back whose leases end at one moment   (BENCH_ARGS="--messages N --lease S --spread LIST")
bench-lapse:
	@$(SUPPORT)/setup.sh base
	@$(SUPPORT)/with_server.sh --name lapse -- perl bench/lapse.pl $(BENCH_ARGS)

#: server         leave a throwaway cluster running, print the exports for it on standard output
server:
	@$(SUPPORT)/setup.sh base >&2
	@$(SUPPORT)/server.sh start --name server

#: server-stop    end it
server-stop:
	@$(SUPPORT)/server.sh stop --name server

#: check          set-up, then every test below               (SUITES="pgtap tap ..." picks)
check: setup
	@$(SUPPORT)/check.sh $(SUITES)

#: check-pg17     the suites that meet a server, on PostgreSQL 17 in a chroot of its own (as root); also 15, 18 and 19
$(CHECK_MAJORS):
	@$(SUPPORT)/chroot.sh run $(@:check-pg%=%) tests/support/check.sh $(or $(SUITES),$(SERVER_SUITES))

#: remove-chroots removes those
remove-chroots:
	@$(SUPPORT)/chroot.sh remove --all

#: lint           the rules of the sources
lint:
	@$(SUPPORT)/lint.sh

#: core-test      doctest suites of the core, no server
core-test:
	@$(SUPPORT)/cmake_test.sh core

#: sanitize       the same under the address and undefined-behaviour sanitizers
sanitize:
	@$(SUPPORT)/cmake_test.sh core sanitize

#: sanitize-server  pgTAP and isolation suites with the extension itself under both sanitizers, in the stock server
sanitize-server:
	@$(SUPPORT)/sanitize_server.sh

#: model          the models of the protocol, checked exhaustively by spin
model:
	@tests/model/run.sh

#: pgtap          behaviour of the SQL API                     (TESTS="tests/pgtap/10_x.sql ..." picks)
pgtap:
	@$(SUPPORT)/pgtap.sh $(TESTS)

#: isolation      interleavings of two or more sessions        (TESTS="spec ..." picks)
isolation:
	@$(SUPPORT)/isolation.sh $(TESTS)

#: tap            crash, restart, standby, dump                (TESTS="tests/tap/001_x.pl ..." picks)
tap:
	@$(SUPPORT)/tap.sh $(TESTS)

#: drivers        smoke test of the drivers in other languages (TESTS="tests/drivers/x.py ..." picks)
drivers:
	@$(SUPPORT)/drivers.sh $(TESTS)

#: docs           every command and statement of README.md and docs    (TESTS="docs/x.md ..." picks)
docs:
	@tests/docs/run.sh $(TESTS)

#: client-test    the C++ client and its examples, against a throwaway cluster
client-test:
	@$(SUPPORT)/cmake_test.sh client

#: dist           pg_baton-VERSION.zip from the last commit, for PGXN
dist:
	git archive --format zip --prefix pg_baton-$(BATON_VERSION)/ -o pg_baton-$(BATON_VERSION).zip HEAD
	@echo pg_baton-$(BATON_VERSION).zip

else
# --- the extension -------------------------------------------------------------------------------------------

PG_VERSION := $(shell $(PG_CONFIG) --version 2>/dev/null)
PG_MAJOR   := $(shell echo '$(PG_VERSION)' | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
ifeq ($(PG_VERSION),)
$(error '$(PG_CONFIG)' does not run: set PG_CONFIG to the pg_config of your PostgreSQL, or, on Debian, 'make setup')
endif
ifeq ($(shell test '$(PG_MAJOR)' -ge 15 2>/dev/null && echo yes),)
$(error pg_baton needs PostgreSQL 15 or later, and $(PG_CONFIG) is of $(PG_VERSION))
endif

MODULE_big  = pg_baton
SOURCES     = $(sort $(wildcard extension/src/*.cpp extension/src/*/*.cpp))
OBJS        = $(SOURCES:.cpp=.o)
SQL_PARTS   = $(sort $(wildcard sql/[0-9]*.sql))
SQL_STEPS   = $(patsubst sql/upgrade/%,extension/%,$(sort $(wildcard sql/upgrade/*.sql)))
SQL_INSTALL = extension/pg_baton--$(BATON_VERSION).sql
DATA_built  = $(SQL_INSTALL) $(SQL_STEPS)
BUILT_FOR   = extension/src/.built_for.d
EXTRA_CLEAN = $(DATA_built) $(SOURCES:.cpp=.d) $(BUILT_FOR)
NO_INSTALLCHECK = 1

# No function here gains from JIT inlining, and the bitcode rule of PGXS cannot compile C++17.
override with_llvm = no

WARNINGS = -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare
ifeq ($(CI),true)
WARNINGS += -Werror
endif

# -Wno-register: headers of 15 use the keyword. PGDLLEXPORT: empty in the headers of 15, and all else is hidden.
PG_CXXFLAGS = -std=c++17 -Wno-register -fvisibility=hidden -fvisibility-inlines-hidden \
              -MMD -MP $(WARNINGS) $(EXTRA_CXXFLAGS)
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) -Iextension/src \
              -DPGDLLEXPORT='__attribute__((visibility("default")))' -DBATON_VERSION='"$(BATON_VERSION)"'

# The C++ runtime is linked in and hidden: the server needs none, and no other module's can meet ours.
SHLIB_LINK = -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--version-script=extension/exports.map

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# SANITIZE=1: for tests/support/sanitize_server.sh; the server needs the sanitizers' libraries preloaded.
ifdef SANITIZE
PG_CXXFLAGS += -fsanitize=address,undefined -fno-sanitize=vptr,alignment -fno-omit-frame-pointer
SHLIB_LINK := -fsanitize=address,undefined $(filter-out -static-libstdc++ -static-libgcc,$(SHLIB_LINK))
endif
override COMPILER = $(CXX) $(CXXFLAGS)

-include $(SOURCES:.cpp=.d)

# objects belong to one server version, one compiler, one version of ours
BUILT_FOR_NOW := $(strip $(PG_VERSION) / $(CXX) / $(BATON_VERSION) / $(EXTRA_CXXFLAGS))
ifneq ($(file < $(BUILT_FOR)),$(BUILT_FOR_NOW))
$(BUILT_FOR): FORCE
endif
$(BUILT_FOR):
	@echo '$(BUILT_FOR_NOW)' > $@
.PHONY: FORCE
FORCE:
$(OBJS): $(BUILT_FOR)

# the install script: the numbered parts in the order of their names
$(SQL_INSTALL): $(SQL_PARTS) $(EXTENSION).control sql
	@test -n '$(SQL_PARTS)' || { echo 'make: there is no sql/[0-9]*.sql' >&2; exit 1; }
	cat $(SQL_PARTS) > $@.tmp && mv $@.tmp $@

# the upgrade steps: until its release, a step takes definitions from the parts
$(SQL_STEPS): extension/%.sql: sql/upgrade/%.sql sql/upgrade/expand.awk $(SQL_PARTS) sql
	awk -f sql/upgrade/expand.awk $(SQL_PARTS) $< > $@.tmp && mv $@.tmp $@

# on the running server that PGHOST, PGPORT, ... name, with pg_baton installed and preloaded
installcheck:
	$(SUPPORT)/pgtap.sh --installcheck $(TESTS)
endif
