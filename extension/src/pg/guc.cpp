// See guc.hpp.
#include "guc.hpp"

#include "shmem.hpp"

namespace baton {

int max_lanes = 2048;
int max_queues = 4096;
bool workers_enabled = true;
bool enabled = true;
bool claims_enabled = true;
int launcher_naptime_ms = 60000;
int mover_naptime_ms = 1000;
int retention_naptime_ms = 5000;
int rotate_min_interval_ms = 5000;
int rotate_grace_ms = 60000;
int lapse_spread_ms = 1000;
int sweep_interval_ms = 10000;
int soon_ms = 60000;
int move_after_ms = 600000;
int settle_timeout_ms = 5000;
bool session_claims = false;
int wait_recheck_ms = 1000;
int clock_offset_ms = 0;
char* debug_point = nullptr;

namespace {

void define_int(const char* name, const char* what, int* variable, int value, int low, int high, GucContext context, int flags) {
  DefineCustomIntVariable(name, what, nullptr, variable, value, low, high, context, flags, nullptr, nullptr, nullptr);
}

void define_bool(const char* name, const char* what, bool* variable, bool value, GucContext context) {
  DefineCustomBoolVariable(name, what, nullptr, variable, value, context, 0, nullptr, nullptr, nullptr);
}

}  // namespace

void define_settings(bool preloaded) {
  define_bool("pg_baton.enabled", "Kill switch: off makes every verb raise 55000 and the workers stand still.", &enabled, true, PGC_SIGHUP);
  define_bool("pg_baton.claims", "Off: claims come back empty, for a clone of production that must not work.", &claims_enabled, true,
              PGC_SIGHUP);
  define_int("pg_baton.launcher_naptime", "Time between two looks at the set of databases.", &launcher_naptime_ms, 60000, 100, INT_MAX / 2,
             PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.mover_naptime", "Longest sleep of the mover.", &mover_naptime_ms, 1000, 10, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.retention_naptime", "Sleep of the retention worker between two rounds.", &retention_naptime_ms, 5000, 10, INT_MAX / 2,
             PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.rotate_min_interval", "Shortest time between two truncations of one queue's segments.", &rotate_min_interval_ms, 5000, 0,
             INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.rotate_grace", "Time after a segment's last settlement before it may be truncated without waiting for the horizon.",
             &rotate_grace_ms, 60000, 0, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.move_after", "Time after which what little is left in an old segment is moved although the ring has room.", &move_after_ms,
             600000, 0, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.lapse_spread", "Time over which messages come back whose leases have ended together.", &lapse_spread_ms, 1000, 0,
             INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.sweep_interval", "Longest time that work whose hint was lost stays unseen.", &sweep_interval_ms, 10000, 100, INT_MAX / 2,
             PGC_SIGHUP, GUC_UNIT_MS);
  // Longer than the buckets of the nearest level are wide (core/wheel.hpp) and the time the mover moves ahead (leasemap/due.hpp).
  define_int("pg_baton.soon", "Messages due within this time wait in their queue's segments, later ones in due-time buckets.", &soon_ms, 60000,
             20000, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS);
  define_int("pg_baton.settle_timeout", "Longest wait of a single settlement for another one of the same message.", &settle_timeout_ms, 5000, 0,
             INT_MAX / 2, PGC_USERSET, GUC_UNIT_MS);
  define_bool("pg_baton.session_claims", "Claims of this session end with it: they are released when it disconnects or dies.", &session_claims, false,
              PGC_USERSET);
  define_int("pg_baton.wait_recheck", "A waiting session looks for itself at least this often.", &wait_recheck_ms, 1000, 10, INT_MAX / 2,
             PGC_USERSET, GUC_UNIT_MS);
  define_int("pg_baton.clock_offset", "For tests: shifts the clock that decides on leases.", &clock_offset_ms, 0, INT_MIN / 2, INT_MAX / 2,
             PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE);
  DefineCustomStringVariable("pg_baton.debug_point", "For tests: names a point in the code and what happens there.", nullptr, &debug_point, "",
                             PGC_SUSET, GUC_NOT_IN_SAMPLE, nullptr, nullptr, nullptr);
  if (!preloaded) return;
  define_int("pg_baton.max_lanes", "Lanes whose hints fit into shared memory.", &max_lanes, 2048, 64, 1000000, PGC_POSTMASTER, 0);
  define_int("pg_baton.max_queues", "Queues whose counters and waiters fit into shared memory.", &max_queues, 4096, 64, 1000000, PGC_POSTMASTER, 0);
  define_bool("pg_baton.workers", "Start the launcher and with it mover and retention workers.", &workers_enabled, true, PGC_POSTMASTER);
  MarkGUCPrefixReserved("pg_baton");
}

void require_preload() {
  if (!shared)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("pg_baton must be loaded at server start"),
                    errhint("Add pg_baton to shared_preload_libraries and restart the server.")));
}

void require_enabled() {
  require_preload();
  if (!enabled)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("pg_baton is switched off"),
                    errhint("Set pg_baton.enabled to on and reload the configuration.")));
}

}  // namespace baton
