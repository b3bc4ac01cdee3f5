// See long_return.hpp. A message is given back by moving it (leasemap/move.hpp), so that it is in exactly one place whatever
// dies. A claim whose lease is over is ended in place first, with the failure counted: if the move comes to nothing, the
// message is there as a ready one and the next look finds it.
#include "long_return.hpp"

#include "../leasemap/lapse.hpp"
#include "../leasemap/move.hpp"
#include "../leasemap/ring.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../leasemap/try_lock.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/shmem.hpp"
#include "settle.hpp"

namespace baton {
namespace {

constexpr int64 kOpenRecheckUs = USECS_PER_SEC;  // an open transaction there is asked after again
constexpr int64 kLateUs = 2 * USECS_PER_SEC;     // so long after its time a look is the mover's no more
constexpr int kMostAtOnce = 500;                 // messages of one queue in one transaction

bool is_over(SlotPhase phase) { return phase == SlotPhase::kDue || phase == SlotPhase::kLater || phase == SlotPhase::kLapsed; }

void add_queue(LongLook* look, int32 id) {
  for (int i = 0; i < look->count; i++)
    if (look->queues[i] == id) return;
  if (look->count < kMostReturned) look->queues[look->count++] = id;
}

void look_at_slot(LongLook* look, const Slot& s, XidStatus status, TimestampTz now) {
  SlotPhase phase = slot_phase(s, status, now);
  if (is_over(phase))
    add_queue(look, static_cast<int32>(s.key_hash));
  else if (phase == SlotPhase::kHeld)
    look->next = Min(look->next, s.deadline);
  else if (phase == SlotPhase::kPending || phase == SlotPhase::kSettling)
    look->next = Min(look->next, now + kOpenRecheckUs);
}

struct Batch {
  MoveItem items[kMostAtOnce];
  int count;
};

// One page: ends claims whose lease is over, sets aside what has used up its attempts, collects the rest.
int collect_page(const Queue* q, const Segment& s, BlockNumber block, int32 id, PageCopy* copy, Batch* batch) {
  if (!copy_slots(s.map, block, 0, kSlotsPerPage, nullptr, copy)) return 0;
  resolve_copy(s.heap, copy);
  TimestampTz now = clock_now();
  bool ends[kSlotsPerPage];
  bool any = false;
  for (int i = 0; i < copy->count; i++) {
    const Slot& slot = copy->resolved[i];
    ends[i] = q && static_cast<int32>(slot.key_hash) == id && slot_phase(slot, copy->status[i], now) == SlotPhase::kLapsed &&
              slot.failures + 1 < q->max_attempts;
    any |= ends[i];
  }
  if (any) (void)end_lapsed(s, block, copy, ends, now);
  int aside = 0;
  for (int i = 0; i < copy->count && batch->count < kMostAtOnce; i++) {
    const Slot& slot = copy->resolved[i];
    SlotPhase phase = slot_phase(slot, copy->status[i], now);
    if (static_cast<int32>(slot.key_hash) != id) continue;
    Place place{block, static_cast<uint8>(i)};
    if (!q ? is_over(phase) || phase == SlotPhase::kHeld : phase == SlotPhase::kDue || phase == SlotPhase::kLater)
      batch->items[batch->count++] = MoveItem{slot, place, phase == SlotPhase::kLater ? slot.deadline : 0};
    else if (q && phase == SlotPhase::kLapsed)
      aside += set_aside(q, s, 0, slot, place, SettleKind::kQuarantined, "max_attempts") ? 1 : 0;
  }
  return aside;
}

// What is not moved is locked by plain SQL, or has lost its row, and then only its slot is left.
int give_back(Queue* q, const Segment& s, Batch* batch) {
  auto* moved = static_cast<bool*>(palloc(sizeof(bool) * kMostAtOnce));
  int n = q ? move_messages(q, s, batch->items, batch->count, MoveTarget::kQueue, moved) : 0;
  for (int i = 0; i < batch->count; i++)
    if ((!q || !moved[i]) && !row_is_live(s.heap, batch->items[i].slot)) purge_slots(s, &batch->items[i], 1);
  pfree(moved);
  return n;
}

}  // namespace

void look_at_long_segments(LongLook* look) {
  TimestampTz now = clock_now();
  look->count = 0;
  look->next = now + static_cast<int64>(sweep_interval_ms) * 1000;
  // What others note while the maps are read is not lost: from here on it is kept apart from what this look finds.
  begin_long_look(look->next);
  bool pushed = push_snapshot_if_none();
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  for (int t = 0; t < kLongTables; t++) {
    Segment s;
    if (!try_open_segment(shared_table_oid(SharedKind::kLong, t), AccessShareLock, &s)) continue;
    BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
    for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
      CHECK_FOR_INTERRUPTS();
      if (!copy_slots(s.map, b, 0, kSlotsPerPage, nullptr, copy)) continue;
      resolve_copy(s.heap, copy);
      for (int i = 0; i < copy->count; i++) look_at_slot(look, copy->resolved[i], copy->status[i], now);
      write_resolved(s.map, b, copy);
    }
    close_segment(s, AccessShareLock);
  }
  pfree(copy);
  if (pushed) PopActiveSnapshot();
  long_noted(look->count > 0 ? now + kOpenRecheckUs : look->next);
}

int return_long_claims(int32 id) {
  Queue* queue = find_queue_by_id(id);
  Queue q;
  if (queue) q = *queue;
  if (queue && (!q.at_home || !try_lock_queue_for_writing(q))) return 0;
  int done = 0;
  bool pushed = push_snapshot_if_none();
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  auto* batch = static_cast<Batch*>(palloc(sizeof(Batch)));
  for (int t = 0; t < kLongTables; t++) {
    Segment s;
    if (!try_open_segment(shared_table_oid(SharedKind::kLong, t), RowExclusiveLock, &s)) continue;
    batch->count = 0;
    BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
    for (BlockNumber b = kMetaBlock + 1; b < blocks && batch->count < kMostAtOnce; b++) {
      CHECK_FOR_INTERRUPTS();
      done += collect_page(queue ? &q : nullptr, s, b, id, copy, batch);
    }
    debug_here("long-return");
    done += give_back(queue ? &q : nullptr, s, batch);
    close_segment(s, NoLock);
  }
  pfree(batch);
  pfree(copy);
  if (pushed) PopActiveSnapshot();
  return done;
}

void purge_long_claims(int32 id) {
  bool pushed = push_snapshot_if_none();
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  auto* items = static_cast<MoveItem*>(palloc(sizeof(MoveItem) * kSlotsPerPage));
  for (int t = 0; t < kLongTables; t++) {
    Oid table = shared_table_oid(SharedKind::kLong, t);
    if (!OidIsValid(table)) continue;
    Segment s = open_segment(table, RowExclusiveLock);
    BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
    for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
      CHECK_FOR_INTERRUPTS();
      if (!copy_slots(s.map, b, 0, kSlotsPerPage, nullptr, copy)) continue;
      resolve_copy(s.heap, copy);
      int n = 0;
      for (int i = 0; i < copy->count; i++) {
        const Slot& slot = copy->resolved[i];
        if (static_cast<int32>(slot.key_hash) == id && slot_is_unsettled(slot) && !slot_has_open_xid(slot))
          items[n++] = MoveItem{slot, Place{b, static_cast<uint8>(i)}, 0};
      }
      purge_slots(s, items, n);
    }
    close_segment(s, NoLock);
  }
  pfree(items);
  pfree(copy);
  if (pushed) PopActiveSnapshot();
}

void help_with_long_claims(const Queue* queue, TimestampTz now) {
  static TimestampTz helped_at = 0;
  if (now < long_next() + kLateUs || now - helped_at < kLateUs || !OidIsValid(shared_table_oid(SharedKind::kLong, 0))) return;
  helped_at = now;
  int32 id = queue->id;
  auto* look = static_cast<LongLook*>(palloc(sizeof(LongLook)));
  look_at_long_segments(look);
  for (int i = 0; i < look->count; i++)
    if (look->queues[i] == id) (void)return_long_claims(id);
  pfree(look);
}

}  // namespace baton
