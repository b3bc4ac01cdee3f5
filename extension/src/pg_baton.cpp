// Module entry: settings, shared memory, hooks, launcher. Nothing else.
#include "leasemap/xact.hpp"
#include "pg/guc.hpp"
#include "pg/queue.hpp"
#include "pg/shmem.hpp"
#include "sqlfn/queue_notes.hpp"
#include "worker/lifecycle_hooks.hpp"
#include "worker/launcher.hpp"

extern "C" {
#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "pg_baton", .version = BATON_VERSION);
#else
PG_MODULE_MAGIC;
#endif
PGDLLEXPORT void _PG_init(void);
}

void _PG_init(void) {
  bool preloading = process_shared_preload_libraries_in_progress;
  // Settings that make sense without preload come first; the access method must work without it (pg_restore, pg_upgrade).
  baton::define_settings(preloading);
  baton::register_queue_cache();
  if (IsBinaryUpgrade) return;
  if (!preloading) return;
  baton::install_shmem_hooks();
  baton::register_xact_callbacks();
  baton::register_queue_notes();
  baton::install_lifecycle_hooks();
  if (baton::workers_enabled) baton::register_launcher();
}
