// Settings.
#pragma once

#include "postgres.hpp"

namespace baton {

// POSTMASTER
extern int max_lanes;
extern int max_queues;
extern bool workers_enabled;
// SIGHUP
extern bool enabled;           // kill switch: off makes every verb raise 55000 and the workers stop
extern bool claims_enabled;    // off: claims come back empty (a clone of production that must not work)
extern int launcher_naptime_ms;
extern int mover_naptime_ms;
extern int retention_naptime_ms;
extern int rotate_min_interval_ms;
extern int rotate_grace_ms;
extern int lapse_spread_ms;
extern int sweep_interval_ms;
extern int soon_ms;
extern int move_after_ms;
// USERSET
extern int settle_timeout_ms;  // how long a single settlement waits for another of the same message
extern bool session_claims;    // this session's claims end with it
extern int wait_recheck_ms;    // a waiting session looks for itself at least this often
// SUSET, for tests
extern int clock_offset_ms;
extern char* debug_point;

void define_settings(bool preloaded);

// Raises 55000 unless the library was preloaded and pg_baton.enabled is on.
void require_enabled();
void require_preload();  // only the first of the two

}  // namespace baton
