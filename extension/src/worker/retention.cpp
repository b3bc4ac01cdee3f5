// The retention worker: rotation, regular forced sweeps (no message whose hint was lost waits longer than
// pg_baton.sweep_interval), and statistics that outlive shared memory. Its absence costs disk, never a message; the mover
// does this work when there is no worker process for it.
#include "retention.hpp"

#include "../leasemap/ring.hpp"
#include "../leasemap/rotate.hpp"
#include "../leasemap/survivors.hpp"
#include "../pg/guc.hpp"
#include "../pg/queue.hpp"
#include "../retained/reclaim.hpp"
#include "expire.hpp"
#include "mover.hpp"
#include "names.hpp"

namespace baton {
namespace {

constexpr int64 kSweepBudget = 2 * USECS_PER_SEC;  // of one round
constexpr int kMostBatches = 20;                   // of survivors of one queue in one round

struct RotateWork {
  int32 queue_id;
  bool left;
};

void rotate_body(void* argument) {
  auto* w = static_cast<RotateWork*>(argument);
  Queue* queue = find_queue_by_id(w->queue_id);
  if (!queue || !queue->at_home) return;
  int32 id = queue->id;
  (void)rotate_queue(queue, &w->left);
  // The definition may have been loaded anew meanwhile.
  if ((queue = find_queue_by_id(id)) != nullptr) (void)move_on_early(queue);
}

void retained_body(void*) { (void)reclaim_retained(); }

void retained_index_body(void* more) { *static_cast<bool*>(more) = sum_up_retained(); }

struct MoveWork {
  int32 queue_id;
  bool forced;
  int moved;
};

void move_body(void* argument) {
  auto* w = static_cast<MoveWork*>(argument);
  Queue* queue = find_queue_by_id(w->queue_id);
  w->moved = queue ? move_survivors(queue, w->forced) : 0;
}

void turn_body(void* argument) {
  auto* w = static_cast<MoveWork*>(argument);
  w->moved = turn_long_segments(w->forced);
}

void shared_body(void*) { (void)rotate_shared_tables(); }

// A batch in each step, while there are more; after the first it is known that they are to be moved.
bool move_in_batches(StepRunner run, StepBody body, int32 queue_id, bool forced) {
  MoveWork w{queue_id, forced, 0};
  for (int i = 0; i < kMostBatches; i++) {
    if (queue_id != 0) next_step_is_of(queue_id);
    if (!run(Step::kMove, body, &w)) return false;
    if (w.moved == 0) break;
    w.forced = true;
  }
  return true;
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

bool rotate_one(StepRunner run, int32 queue_id, bool* left) {
  RotateWork w{queue_id, false};
  next_step_is_of(queue_id);
  bool done = run(Step::kRotate, rotate_body, &w);
  *left = w.left;
  return done;
}

void keep_retained_tables(StepRunner run) {
  (void)run(Step::kRetained, retained_body, nullptr);
  bool more = true;
  while (more && run(Step::kRetainedIndex, retained_index_body, &more)) continue;
}

bool move_one(StepRunner run, int32 queue_id, bool forced) { return move_in_batches(run, move_body, queue_id, forced); }

void keep_shared_tables(StepRunner run, bool forced) {
  (void)run(Step::kShared, shared_body, nullptr);
  (void)move_in_batches(run, turn_body, 0, forced);
}

void retention_round(StepRunner run) {
  int32* ids;
  int count;
  if (!list_queues(run, &ids, &count)) return;
  for (int i = 0; i < count; i++) {
    bool left;
    if (rotate_one(run, ids[i], &left) && left) (void)move_one(run, ids[i], false);
  }
  keep_shared_tables(run, false);
  keep_retained_tables(run);
  keep_worker_names(run);
  expire_quarantined(run);
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
