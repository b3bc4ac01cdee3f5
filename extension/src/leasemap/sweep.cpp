// See sweep.hpp. A sweep takes share locks to read and an exclusive lock only on pages where an outcome is written.
#include "sweep.hpp"

#include "../pg/clock.hpp"
#include "../pg/shmem.hpp"
#include "resolve.hpp"
#include "xact.hpp"

namespace baton {
namespace {

constexpr int64 kPendingRecheckUs = 1000000;  // an open transaction below the frontier is asked after again

// The earliest due times met; what does not fit is stood for by the time of a later sweep.
struct DueList {
  TimedRange items[kTimed / 2];
  int count;
  TimestampTz beyond;
};

void add_due(DueList* d, TimestampTz at, BlockNumber block, int index) {
  constexpr int kMax = kTimed / 2;
  if (d->count == kMax) {
    if (at >= d->items[kMax - 1].at) {
      d->beyond = Min(d->beyond, at);
      return;
    }
    d->beyond = Min(d->beyond, d->items[kMax - 1].at);
    d->count--;
  }
  int i = d->count++;
  while (i > 0 && d->items[i - 1].at > at) {
    d->items[i] = d->items[i - 1];
    i--;
  }
  d->items[i] = TimedRange{at, Range{block, static_cast<uint8>(index), 1, 0, 0}};
}

struct SweepState {
  const Queue* queue;
  LaneHint* hint;
  LaneKey key;
  TimestampTz now;
  int room;
  bool full;
  DueList due;
  SweepResult* result;
};

bool used_up(const Queue* q, const Slot& s) {
  return (slot_state(s) == SlotState::kClaimed && s.failures + 1 >= q->max_attempts) || s.failures >= q->max_attempts;
}

// Publishes what is claimable on the page. Returns true if any slot on it is unsettled.
bool look_at_page(SweepState* st, const PageCopy& copy, BlockNumber block, int limit) {
  bool unsettled = false;
  Range pending{block, 0, 0, 0, 0};
  for (int i = 0; i < limit && !st->full; i++) {
    const Slot& s = copy.resolved[i];
    if (slot_is_unsettled(s)) unsettled = true;
    bool publish = false;
    switch (slot_phase(s, copy.status[i], st->now)) {
      case SlotPhase::kLapsed:
        if (slot_eligible_at(s, static_cast<int64>(lapse_spread_ms) * 1000) > st->now && !used_up(st->queue, s)) {
          add_due(&st->due, slot_eligible_at(s, static_cast<int64>(lapse_spread_ms) * 1000), block, i);
          break;
        }
        publish = true;
        if (used_up(st->queue, s)) st->result->exhausted++;
        break;
      case SlotPhase::kDue:
        publish = true;
        if (used_up(st->queue, s)) st->result->exhausted++;
        break;
      case SlotPhase::kLater:
        add_due(&st->due, s.deadline, block, i);
        break;
      case SlotPhase::kHeld:
        st->result->next_at = Min(st->result->next_at, s.deadline);
        break;
      case SlotPhase::kPending:
      case SlotPhase::kSettling:
        st->result->next_at = Min(st->result->next_at, st->now + kPendingRecheckUs);
        break;
      default:
        break;
    }
    if (!publish) continue;
    if (pending.count > 0 && pending.first + pending.count == i) {
      pending.count++;
    } else {
      if (pending.count > 0) {
        publish_range(st->hint, st->key, pending);
        st->room--;
      }
      if (st->room <= 1) st->full = true;
      pending.first = static_cast<uint8>(i);
      pending.count = st->full ? 0 : 1;
    }
    if (!st->full) st->result->published++;
  }
  if (pending.count > 0) {
    publish_range(st->hint, st->key, pending);
    st->room--;
  }
  return unsettled || st->full;
}

}  // namespace

void sweep_lane(const Queue* queue, const Segment& segment, uint32 lane, bool force, SweepResult* result) {
  *result = SweepResult{0, 0, 0, kNever};
  SweepState st;
  st.queue = queue;
  st.key = lane_key(segment.map, lane);
  st.hint = lane_hint(segment.map, lane);
  st.now = clock_now();
  st.full = false;
  st.due.count = 0;
  st.due.beyond = kNever;
  st.result = result;
  SweepPlan plan = begin_sweep(st.hint, st.key, st.now, force);
  if (!plan.go) return;
  note_sweep(st.key);
  st.room = room_for_revisits(st.hint, st.key) - 8;  // leave room for others to publish
  bool pushed = push_snapshot_if_none();
  BlockNumber block = plan.start;
  if (!BlockNumberIsValid(block)) {
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(segment.map, &meta, &entry, lane);
    block = entry.first;
  }
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  BlockNumber low_block = InvalidBlockNumber;
  uint32 low_ordinal = 0;
  // Only a sweep from the bottom can say that everything before a page is settled.
  bool settled_so_far = plan.from_bottom;
  BlockNumber resume = InvalidBlockNumber;
  while (BlockNumberIsValid(block)) {
    CHECK_FOR_INTERRUPTS();
    if (!copy_slots(segment.map, block, 0, kSlotsPerPage, strategy, copy)) raise_damaged_map(segment.map, block);
    uint64 first = static_cast<uint64>(copy->ordinal) * kSlotsPerPage;
    bool last = first >= plan.end;
    bool unsettled = true;
    if (!last) {
      resolve_copy(segment.heap, copy);
      int limit = static_cast<int>(Min(static_cast<uint64>(copy->count), plan.end - first));
      unsettled = look_at_page(&st, *copy, block, limit);
      result->slots += limit;
      write_resolved(segment.map, block, copy);
      unsettled = unsettled || copy->count < kSlotsPerPage || limit < copy->count;
    }
    // Pages before the first unsettled slot need never be read again: a settled slot stays settled. A page that is not
    // full, or that has an open enqueue on it, is not such a page.
    if (settled_so_far && unsettled) {
      settled_so_far = false;
      low_block = block;
      low_ordinal = copy->ordinal;
    }
    if (st.full) {
      resume = block;
      break;
    }
    if (last) break;
    block = copy->next;
  }
  FreeAccessStrategy(strategy);
  pfree(copy);
  if (pushed) PopActiveSnapshot();
  for (int i = 0; i < st.due.count; i++) publish_timed(st.hint, st.key, st.due.items[i].at, st.due.items[i].range);
  result->next_at = Min(result->next_at, st.due.beyond);
  end_sweep(st.hint, st.key, st.now, resume, low_block, low_ordinal, result->next_at);
  // The mover may have looked at the lane in between, when none of these times was known.
  if (st.due.count > 0 || result->next_at != kNever) note_for_notify(MyDatabaseId, queue->id, kNotifyLook);
  sweep_done();
}

int64 sweep_queue(Queue* queue, bool force, int64* exhausted) {
  if (exhausted) *exhausted = 0;
  int64 slots = 0;
  int64 published = 0;
  for (int i = 0; i < queue->segment_count; i++) {
    Segment segment = open_segment(queue->heap[i], RowExclusiveLock);
    LaneDirectoryEntry lanes[kMaxLanes];
    int n = list_lanes(segment.map, lanes, kMaxLanes);
    for (int l = 0; l < n; l++) {
      SweepResult r;
      sweep_lane(queue, segment, lanes[l].lane, force, &r);
      slots += r.slots;
      published += r.published;
      if (exhausted) *exhausted += r.exhausted;
    }
    close_segment(segment, RowExclusiveLock);
  }
  wake_waiters(MyDatabaseId, queue->id, static_cast<uint64>(published));
  return slots;
}

TimestampTz queue_next_at(Queue* queue, bool* has_work) {
  TimestampTz next = kNever;
  TimestampTz now = clock_now();
  *has_work = false;
  for (int i = 0; i < queue->segment_count; i++) {
    Segment segment = open_segment(queue->heap[i], AccessShareLock);
    LaneDirectoryEntry lanes[kMaxLanes];
    int n = list_lanes(segment.map, lanes, kMaxLanes);
    for (int l = 0; l < n; l++) {
      LaneHint* h = lane_hint(segment.map, lanes[l].lane);
      if (lane_has_work(h, lane_key(segment.map, lanes[l].lane), now, &next)) *has_work = true;
    }
    close_segment(segment, AccessShareLock);
  }
  return next;
}

void resolve_old_xids(Relation map, BufferAccessStrategy strategy) {
  bool pushed = push_snapshot_if_none();
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(map);
  for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
    baton_vacuum_delay();
    if (!copy_slots(map, b, 0, kSlotsPerPage, strategy, copy)) continue;
    resolve_copy(nullptr, copy);
    write_resolved(map, b, copy);
  }
  pfree(copy);
  if (pushed) PopActiveSnapshot();
}

}  // namespace baton
