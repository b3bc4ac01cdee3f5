// See queue_notes.hpp. Callbacks here allocate nothing and raise nothing.
#include "queue_notes.hpp"

#include "../pg/shmem.hpp"

namespace baton {
namespace {

struct FenceNote {
  int32 queue_id;
  uint32 incarnation;
  SubTransactionId sub;
};

constexpr int kMostNotes = 16;  // in one transaction; a fence beyond them is seen by verbs that begin after its commit
FenceNote fences[kMostNotes];
int fence_count = 0;
int32 resumed[kMostNotes];
int resumed_count = 0;

void take_back(int from) {
  for (int i = from; i < fence_count; i++) {
    QueueHint* q = find_queue_hint(MyDatabaseId, fences[i].queue_id);
    uint32 expected = fences[i].incarnation;
    if (q) pg_atomic_compare_exchange_u32(&q->fenced_incarnation, &expected, 0);
  }
  fence_count = from;
}

int first_of(SubTransactionId sub) {
  int i = fence_count;
  while (i > 0 && fences[i - 1].sub >= sub) i--;
  return i;
}

void on_transaction(XactEvent event, void*) {
  if (!shared) return;
  // Of a prepared transaction nobody would say here whether it was rolled back.
  if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE) take_back(0);
  if (event == XACT_EVENT_COMMIT) fence_count = 0;
}

void on_subtransaction(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void*) {
  if (!shared) return;
  if (event == SUBXACT_EVENT_ABORT_SUB) take_back(first_of(sub));
  if (event == SUBXACT_EVENT_COMMIT_SUB)
    for (int i = first_of(sub); i < fence_count; i++) fences[i].sub = parent;
}

// The last phase: only then can others see that the definition has changed. A callback of the commit comes before that.
void on_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void*) {
  if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level || resumed_count == 0) return;
  for (int i = 0; i < resumed_count && is_commit; i++) wake_waiters(MyDatabaseId, resumed[i], PG_UINT64_MAX);
  resumed_count = 0;
}

}  // namespace

void register_queue_notes() {
  RegisterXactCallback(on_transaction, nullptr);
  RegisterSubXactCallback(on_subtransaction, nullptr);
  RegisterResourceReleaseCallback(on_release, nullptr);
}

void note_fenced(int32 queue_id, int32 incarnation) {
  if (fence_count == kMostNotes) return;
  fences[fence_count++] = FenceNote{queue_id, static_cast<uint32>(incarnation), GetCurrentSubTransactionId()};
  pg_atomic_write_u32(&queue_hint(MyDatabaseId, queue_id)->fenced_incarnation, static_cast<uint32>(incarnation));
}

void note_resumed(int32 queue_id) {
  if (resumed_count < kMostNotes) resumed[resumed_count++] = queue_id;
}

}  // namespace baton
