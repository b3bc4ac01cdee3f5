// See notify.hpp. Whoever makes work ready sets a bit in the queue's hint (pg/shmem.cpp, note_for_notify) and wakes the
// mover if it is the first since the mover looked: that is all that an enqueue pays, and only where the queue asks. The bit
// is cleared before the NOTIFY is sent, never after: work that comes in between sets it again.
//
// A NOTIFY says "look", no more: the mover sends it after the work is visible to all. While there is work that nobody
// takes, it is repeated every pg_baton.sweep_interval, so that neither a lost hint nor a lost connection loses a message.
#include "notify.hpp"

#include "../pg/guc.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"

namespace baton {
namespace {

constexpr int64 kWindow = 50 * 1000;              // of one queue
constexpr int64 kFailedRetry = USECS_PER_SEC;

struct NotifiedQueue {
  int32 id;  // hash key
  char name[NAMEDATALEN];
  bool asked;
  TimestampTz sent_at;
};
HTAB* notified = nullptr;

HTAB* notified_queues() {
  if (notified) return notified;
  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = sizeof(int32);
  ctl.entrysize = sizeof(NotifiedQueue);
  ctl.hcxt = TopMemoryContext;
  notified = hash_create("pg_baton notified queues", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  return notified;
}

void find_body(void*) {
  QueueName* names;
  int n = list_notified_queues(&names);
  for (int i = 0; i < n; i++) {
    bool found;
    auto* q = static_cast<NotifiedQueue*>(hash_search(notified_queues(), &names[i].id, HASH_ENTER, &found));
    if (!found) q->sent_at = 0;
    q->asked = true;
    strlcpy(q->name, names[i].name, NAMEDATALEN);
  }
}

struct Outgoing {
  NotifiedQueue* queues[256];
  int count;
};

void send_body(void* argument) {
  auto* out = static_cast<Outgoing*>(argument);
  for (int i = 0; i < out->count; i++) {
    char channel[NAMEDATALEN];
    notify_channel(out->queues[i]->id, channel);
    Async_Notify(channel, out->queues[i]->name);
  }
}

}  // namespace

void find_notified_queues(StepRunner run) {
  static TimestampTz found_at = 0;
  TimestampTz now = GetCurrentTimestamp();
  if (now - found_at < static_cast<int64>(mover_naptime_ms) * 1000) return;
  found_at = now;
  HASH_SEQ_STATUS seq;
  NotifiedQueue* q;
  hash_seq_init(&seq, notified_queues());
  while ((q = static_cast<NotifiedQueue*>(hash_seq_search(&seq))) != nullptr) q->asked = false;
  if (!run(Step::kNotify, find_body, nullptr)) {
    // As before.
    hash_seq_init(&seq, notified_queues());
    while ((q = static_cast<NotifiedQueue*>(hash_seq_search(&seq))) != nullptr) q->asked = true;
    return;
  }
  hash_seq_init(&seq, notified_queues());
  while ((q = static_cast<NotifiedQueue*>(hash_seq_search(&seq))) != nullptr) {
    QueueHint* h = queue_hint(MyDatabaseId, q->id);
    if (!q->asked) {
      pg_atomic_write_u32(&h->notify, 0);
      hash_search(notified_queues(), &q->id, HASH_REMOVE, nullptr);
    } else if (!(pg_atomic_read_u32(&h->notify) & kNotifyAsked)) {
      // Its option is new, or the hint is: what there is to do already has not been noted.
      pg_atomic_fetch_or_u32(&h->notify, kNotifyAsked | kNotifyWork | kNotifyLook);
    }
  }
}

TimestampTz send_notifications(StepRunner run, bool* noted, bool* look) {
  *noted = false;
  *look = false;
  TimestampTz next = kNever;
  TimestampTz now = GetCurrentTimestamp();
  Outgoing out;
  out.count = 0;
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, notified_queues());
  while (auto* q = static_cast<NotifiedQueue*>(hash_seq_search(&seq))) {
    QueueHint* h = find_queue_hint(MyDatabaseId, q->id);
    if (!h || !(pg_atomic_read_u32(&h->notify) & (kNotifyWork | kNotifyLook))) continue;
    *noted = true;
    if (now - q->sent_at < kWindow || out.count == static_cast<int>(lengthof(out.queues))) {
      next = Min(next, Max(q->sent_at + kWindow, now));
      continue;
    }
    uint32 what = pg_atomic_fetch_and_u32(&h->notify, ~(kNotifyWork | kNotifyLook));
    *look |= (what & kNotifyLook) != 0;
    q->sent_at = now;
    if (what & kNotifyWork) out.queues[out.count++] = q;
  }
  if (out.count == 0 || run(Step::kNotify, send_body, &out)) return next;
  for (int i = 0; i < out.count; i++) {
    pg_atomic_fetch_or_u32(&queue_hint(MyDatabaseId, out.queues[i]->id)->notify, kNotifyWork);
    out.queues[i]->sent_at = now + kFailedRetry;
  }
  return Min(next, now + kFailedRetry);
}

void note_fallen_due(int32 queue_id) { note_for_notify(MyDatabaseId, queue_id, kNotifyWork); }

void note_waiting_work(int32 queue_id) {
  auto* q = static_cast<NotifiedQueue*>(hash_search(notified_queues(), &queue_id, HASH_FIND, nullptr));
  if (q && GetCurrentTimestamp() - q->sent_at >= static_cast<int64>(sweep_interval_ms) * 1000) note_fallen_due(queue_id);
}

}  // namespace baton
