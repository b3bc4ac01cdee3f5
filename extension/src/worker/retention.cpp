// The retention worker: rotation, regular forced sweeps (no message whose hint was lost waits longer than
// pg_baton.sweep_interval), and statistics that outlive shared memory. Its absence costs disk, never a message; the mover
// does this work when there is no worker process for it.
#include "retention.hpp"

#include "../leasemap/ring.hpp"
#include "../leasemap/rotate.hpp"
#include "../pg/guc.hpp"
#include "../pg/queue.hpp"
#include "mover.hpp"

namespace baton {
namespace {

constexpr int64 kSweepBudget = 2 * USECS_PER_SEC;  // of one round

void rotate_body(void* argument) {
  Queue* queue = find_queue_by_id(*static_cast<int32*>(argument));
  if (!queue || !queue->at_home) return;
  int32 id = queue->id;
  (void)rotate_queue(queue);
  // The definition may have been loaded anew meanwhile.
  if ((queue = find_queue_by_id(id)) != nullptr) (void)move_on_early(queue);
}

// ---- worker names

void read_names(WorkerName* out, int* count) {
  *count = 0;
  LWLockAcquire(shared->name_lock, LW_SHARED);
  for (const WorkerName& w : shared->names)
    if (w.hash != 0 && !w.saved && w.database == MyDatabaseId) out[(*count)++] = w;
  LWLockRelease(shared->name_lock);
}

void names_body(void* argument) {
  auto* w = static_cast<WorkerName*>(argument);
  if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  Oid types[] = {INT4OID, TEXTOID};
  for (; w->hash != 0; w++) {
    // A name that was cut may end in the middle of a character.
    int n = pg_mbcliplen(w->name, static_cast<int>(strlen(w->name)), static_cast<int>(strlen(w->name)));
    Datum values[] = {Int32GetDatum(static_cast<int32>(w->hash)), PointerGetDatum(cstring_to_text_with_len(w->name, n))};
    int rc = SPI_execute_with_args("INSERT INTO baton_internal.worker_name (hash, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", 2, types,
                                   values, nullptr, false, 0);
    if (rc != SPI_OK_INSERT) elog(ERROR, "saving a worker's name: %s", SPI_result_code_string(rc));
  }
  SPI_finish();
}

// ---- forced sweeps

struct Swept {
  int32 id;  // hash key
  TimestampTz at;
};
HTAB* swept = nullptr;

bool sweep_is_due(int32 id, TimestampTz now) {
  if (!swept) {
    HASHCTL ctl;
    memset(&ctl, 0, sizeof(ctl));
    ctl.keysize = sizeof(int32);
    ctl.entrysize = sizeof(Swept);
    ctl.hcxt = TopMemoryContext;
    swept = hash_create("pg_baton sweeps", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  }
  bool found;
  auto* s = static_cast<Swept*>(hash_search(swept, &id, HASH_ENTER, &found));
  if (!found) s->at = 0;
  if (now - s->at < static_cast<int64>(sweep_interval_ms) * 1000) return false;
  s->at = now;
  return true;
}

}  // namespace

bool rotate_one(StepRunner run, int32 queue_id) { return run(Step::kRotate, rotate_body, &queue_id); }

bool save_worker_names(StepRunner run) {
  auto* names = static_cast<WorkerName*>(MemoryContextAllocZero(round_context(), sizeof(WorkerName) * (kWorkerNames + 1)));
  int n;
  read_names(names, &n);
  if (n == 0) return true;
  if (!run(Step::kNames, names_body, names)) return false;
  LWLockAcquire(shared->name_lock, LW_EXCLUSIVE);
  for (WorkerName& w : shared->names)
    for (int i = 0; i < n && !w.saved; i++)
      if (w.hash == names[i].hash && w.database == names[i].database) w.saved = true;
  LWLockRelease(shared->name_lock);
  return true;
}

void retention_round(StepRunner run) {
  int32* ids;
  int count;
  if (!list_queues(run, &ids, &count)) return;
  for (int i = 0; i < count; i++) (void)rotate_one(run, ids[i]);
  (void)save_worker_names(run);
  TimestampTz start = GetCurrentTimestamp();
  static uint32 rotor = 0;
  rotor++;
  for (int i = 0; i < count; i++) {
    int32 id = ids[(rotor + static_cast<uint32>(i)) % static_cast<uint32>(count)];
    TimestampTz now = GetCurrentTimestamp();
    if (now - start > kSweepBudget) break;
    if (sweep_is_due(id, now)) (void)sweep_one(run, id, true);
  }
}

}  // namespace baton

extern "C" {
PGDLLEXPORT void baton_retention_main(Datum database);
}

void baton_retention_main(Datum database) {
  using namespace baton;
  enter_worker(database, WorkerKind::kRetention);
  for (;;) {
    leave_if_not_wanted();
    MemoryContextSwitchTo(round_context());
    MemoryContextReset(round_context());
    if (enabled) retention_round(run_in_worker);
    leave_if_not_wanted();
    rest(retention_naptime_ms);
  }
}
