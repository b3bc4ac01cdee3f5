// See survivors.hpp. A segment is emptied when nothing but a few messages keeps it: it is not written any more, every message in
// it was offered or claimed, little of it is unsettled, it could be reclaimed without them (no snapshot holds it as well: what is moved
// under a pinned horizon gains nothing and forbids a truncation by budget, core/keep.hpp), and it is needed: the ring has no
// empty segment, or it has been like that for pg_baton.move_after.
//
// Ready messages go to the queue's write segment, with their failures and in their order, and are offered before everything
// there (leasemap/xact.hpp). Only if no larger backlog waits in the segments after theirs than the one they leave: claimers
// go through the segments in the order of their opening, and a crash forgets who was to be offered first. Claims go to the
// long segment, where their tokens find them. What is being settled, has its row locked, or came by logical replication stays.
//
// Every lock is asked for, never waited for; rows and slots change in one transaction (leasemap/move.hpp).
#include "survivors.hpp"

#include "../core/lane.hpp"
#include "../pg/clock.hpp"
#include "../pg/guc.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "drain.hpp"
#include "lapse.hpp"
#include "move.hpp"
#include "ring.hpp"
#include "shared_tables.hpp"
#include "try_lock.hpp"

namespace baton {
namespace {

constexpr int kLittleShare = 20;    // little: one slot in so many
constexpr int kBatch = 1000;        // messages in one transaction
constexpr int64 kLongBytes = 1024 * 1024;  // from this size on writing goes on in the other long segment

// ---- what is left

struct Left {
  int64 slots;
  int64 unsettled;
  int64 ready;     // unclaimed, or under a lease that is over
  bool foreign;    // some came by logical replication and are not ours to move
  bool little;
  uint64 newest_xid;  // of what is settled
  BlockNumber first;  // page of the first that is not
};

// Stops as soon as it is more than little.
Left count_left(const Segment& s) {
  Left left{0, 0, 0, false, true, 0, InvalidBlockNumber};
  TimestampTz now = clock_now();
  Drain settled{Keep::kNothing, InvalidBlockNumber, 0, 0, false, false, false};
  BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
  int64 most = Max(static_cast<int64>(blocks - 1) * kSlotsPerPage / kLittleShare, 1);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  for (BlockNumber b = kMetaBlock + 1; b < blocks && left.little; b++) {
    CHECK_FOR_INTERRUPTS();
    if (!copy_slots(s.map, b, 0, kSlotsPerPage, strategy, copy)) continue;
    resolve_copy(s.heap, copy);
    left.slots += copy->count;
    for (int i = 0; i < copy->count; i++) {
      const Slot& slot = copy->resolved[i];
      if (slot_is_unsettled(slot)) {
        SlotPhase phase = slot_phase(slot, copy->status[i], now);
        left.unsettled++;
        left.ready += phase == SlotPhase::kDue || phase == SlotPhase::kLater || phase == SlotPhase::kLapsed;
        left.foreign |= phase == SlotPhase::kForeign;
        if (!BlockNumberIsValid(left.first)) left.first = b;
      } else if (slot_state(slot) == SlotState::kGone) {
        note_drained_slot(slot, &settled);
      }
    }
    left.little = left.unsettled <= most;
  }
  FreeAccessStrategy(strategy);
  pfree(copy);
  // The last page need not be full.
  left.little = left.little && left.unsettled <= Max(left.slots / kLittleShare, 1);
  left.newest_xid = settled.newest_xid;
  return left;
}

// Slots of a segment that were never offered.
int64 backlog_of(const Segment& s) {
  auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
  int n = list_lanes(s.map, lanes, kMaxLanes);
  int64 backlog = 0;
  for (int i = 0; i < n; i++) {
    LaneView view = view_lane(s.map, lanes[i].lane);
    if (view.appended > view.frontier) backlog += static_cast<int64>(view.appended - view.frontier);
  }
  pfree(lanes);
  return backlog;
}

// What would be offered before a message that is moved to the write segment, if who goes first there were forgotten.
// Negative: not known now.
int64 backlog_after(const Ring& ring, uint64 open_seq) {
  int64 backlog = 0;
  for (int i = 0; i < ring.count; i++) {
    if (ring.members[i].open_seq <= open_seq) continue;
    Segment s;
    if (!try_open_segment(ring.members[i].heap, AccessShareLock, &s)) return -1;
    backlog += backlog_of(s);
    close_segment(s, AccessShareLock);
  }
  return backlog;
}

// An acknowledgement here would be refused as well (baton.health says so); nothing is moved then.
bool can_delete(Relation heap) {
  if (heap->rd_rel->relreplident == REPLICA_IDENTITY_FULL || OidIsValid(RelationGetReplicaIndex(heap))) return true;
  PublicationDesc published;
  RelationBuildPublicationDesc(heap, &published);
  return !published.pubactions.pubdelete;
}

// ---- one batch

struct Batch {
  MoveItem ready[kBatch];
  int ready_count;
  MoveItem claims[kBatch];
  int claim_count;
};

bool is_full(const Batch& b) { return b.ready_count == kBatch || b.claim_count == kBatch; }

// One page. only_queue: of a shared table, 0 for a queue's own segment.
void collect_page(const Queue& q, const Segment& s, BlockNumber block, int32 only_queue, bool ready, bool claims, PageCopy* copy, Batch* batch) {
  if (!copy_slots(s.map, block, 0, kSlotsPerPage, nullptr, copy)) return;
  resolve_copy(s.heap, copy);
  TimestampTz now = clock_now();
  bool lapsed[kSlotsPerPage];
  bool any_lapsed = false;
  auto mine = [&](const Slot& slot) { return only_queue == 0 || static_cast<int32>(slot.key_hash) == only_queue; };
  for (int i = 0; i < copy->count; i++) {
    const Slot& slot = copy->resolved[i];
    // The last failure is settle_exhausted's.
    lapsed[i] = ready && mine(slot) && slot_phase(slot, copy->status[i], now) == SlotPhase::kLapsed && slot.failures + 1 < q.max_attempts;
    any_lapsed |= lapsed[i];
  }
  if (any_lapsed) (void)end_lapsed(s, block, copy, lapsed, now);
  for (int i = 0; i < copy->count && !is_full(*batch); i++) {
    const Slot& slot = copy->resolved[i];
    if (!mine(slot)) continue;
    Place place{block, static_cast<uint8>(i)};
    switch (slot_phase(slot, copy->status[i], now)) {
      case SlotPhase::kDue:
        if (ready) batch->ready[batch->ready_count++] = MoveItem{slot, place, 0};
        break;
      case SlotPhase::kLater:
        if (ready) batch->ready[batch->ready_count++] = MoveItem{slot, place, slot.deadline};
        break;
      case SlotPhase::kHeld:
        if (claims) batch->claims[batch->claim_count++] = MoveItem{slot, place, 0};
        break;
      default:
        break;
    }
  }
}

int move_batch(Queue* queue, const Segment& s, BlockNumber first, int32 only_queue, bool ready, bool claims) {
  auto* batch = static_cast<Batch*>(palloc(sizeof(Batch)));
  batch->ready_count = 0;
  batch->claim_count = 0;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
  for (BlockNumber b = first; b < blocks && !is_full(*batch); b++) {
    CHECK_FOR_INTERRUPTS();
    collect_page(*queue, s, b, only_queue, ready, claims, copy, batch);
  }
  int moved = move_messages(queue, s, batch->ready, batch->ready_count, MoveTarget::kQueue);
  for (int i = 0; i < batch->claim_count; i++) long_noted(batch->claims[i].slot.deadline);
  moved += move_messages(queue, s, batch->claims, batch->claim_count, MoveTarget::kLong);
  pfree(copy);
  pfree(batch);
  return moved;
}

// ---- a queue's ring

bool is_needed(const Ring& ring, const DrainNote& note, TimestampTz now) {
  return !ring.any_empty || now - note.little_since >= static_cast<int64>(move_after_ms) * 1000;
}

int empty_segment(Queue* queue, const Ring& ring, const RingMember& m, const Segment& s, bool force) {
  TimestampTz now = GetCurrentTimestamp();
  DrainNote note = read_drain_note(m.rel);
  if (!force && now - note.counted_at < static_cast<int64>(sweep_interval_ms) * 1000) return 0;
  Left left = count_left(s);
  note.counted_at = now;
  if (!left.little)
    note.little_since = 0;
  else if (note.little_since == 0)
    note.little_since = now;
  write_drain_note(note);
  if (!left.little || left.unsettled == 0 || left.foreign || !is_needed(ring, note, now)) return 0;
  if (left.newest_xid >= full_xid_of(GetOldestNonRemovableTransactionId(s.heap)) || !can_delete(s.heap)) return 0;
  // A message that is claimed again must come under a greater fence than before. After a rebuild of the map the older
  // segment can have the greater epoch; it then waits until writing has moved on.
  if (ring.members[ring.newest].epoch <= m.epoch) return 0;
  bool ready = left.ready > 0;
  if (ready) {
    // All of it or nothing: a claim that has gone ahead keeps the segment from a truncation by budget.
    int64 after = backlog_of(s) > 0 ? -1 : backlog_after(ring, m.open_seq);
    if (after < 0 || after > Max(left.unsettled, static_cast<int64>(kSlotsPerPage)) || !try_lock_queue_for_writing(*queue)) return 0;
  }
  // A volatile queue's claims are not worth a row that a crash does not take.
  bool claims = left.unsettled > left.ready && queue->durability != Durability::kVolatile && try_lock_long_for_writing();
  return ready || claims ? move_batch(queue, s, left.first, 0, ready, claims) : 0;
}

int move_from_ring(Queue* q, bool force) {
  Ring ring;
  if (!look_at_ring(*q, &ring) || ring.newest < 0) return 0;
  int moved = 0;
  bool pushed = push_snapshot_if_none();
  while (RingMember* m = moved == 0 ? next_candidate(&ring) : nullptr) {
    Segment s;
    if (!try_open_segment(m->heap, RowExclusiveLock, &s)) continue;
    if (rel_number(s.map) == m->rel) moved = empty_segment(q, ring, *m, s, force);
    close_segment(s, moved > 0 ? NoLock : RowExclusiveLock);
  }
  if (pushed) PopActiveSnapshot();
  return moved;
}

// The definition as it is now, under the lock of those who change it: fence waits for a move that is under way, or it would
// pass by the claim at both places. False: not to be had, or nothing would come of it.
bool try_lock_definition(int32 id, Oid view, Queue* out) {
  if (!ConditionalLockRelationOid(view, ShareUpdateExclusiveLock)) return false;
  Queue* queue = find_queue_by_id(id);
  if (queue && queue->view == view && queue->at_home && queue->rotation_held_until <= clock_now()) {
    *out = *queue;
    return true;
  }
  UnlockRelationOid(view, ShareUpdateExclusiveLock);
  return false;
}

// Any queue that has a claim in what is left of a long segment; another one each time, so that one that cannot be loaded does
// not stand before the others for ever. 0: none.
int32 queue_in(const Segment& s, BlockNumber first) {
  constexpr int kMost = 256;
  static uint32 rotor = 0;
  int32 ids[kMost];
  int n = 0;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
  for (BlockNumber b = first; b < blocks && n < kMost; b++) {
    if (!copy_slots(s.map, b, 0, kSlotsPerPage, nullptr, copy)) continue;
    resolve_copy(s.heap, copy);
    TimestampTz now = clock_now();
    for (int i = 0; i < copy->count && n < kMost; i++)
      if (slot_phase(copy->resolved[i], copy->status[i], now) == SlotPhase::kHeld) ids[n++] = static_cast<int32>(copy->resolved[i].key_hash);
  }
  pfree(copy);
  return n > 0 ? ids[rotor++ % static_cast<uint32>(n)] : 0;
}

int empty_long_segment(const Segment& s, bool force) {
  TimestampTz now = GetCurrentTimestamp();
  DrainNote note = read_drain_note(rel_number(s.map));
  if (!force && now - note.counted_at < static_cast<int64>(sweep_interval_ms) * 1000) return 0;
  Left left = count_left(s);
  note.counted_at = now;
  write_drain_note(note);
  if (!left.little || left.unsettled == 0) return 0;
  if (left.newest_xid >= full_xid_of(GetOldestNonRemovableTransactionId(s.heap)) || !can_delete(s.heap) || !try_lock_long_for_writing()) return 0;
  int32 id = queue_in(s, left.first);
  Queue* queue = id != 0 ? find_queue_by_id(id) : nullptr;
  Queue q;
  return queue && try_lock_definition(id, queue->view, &q) ? move_batch(&q, s, left.first, id, false, true) : 0;
}

}  // namespace

int move_survivors(Queue* queue, bool force) {
  Queue q;
  if (!try_lock_definition(queue->id, queue->view, &q)) return 0;
  int moved = move_from_ring(&q, force);
  if (moved == 0) UnlockRelationOid(q.view, ShareUpdateExclusiveLock);
  return moved;
}

int turn_long_segments(bool force) {
  static_assert(kLongTables == 2);
  Segment s[kLongTables];
  MapMeta meta[kLongTables];
  LaneDirectoryEntry entry;
  for (int i = 0; i < kLongTables; i++) {
    if (!try_open_segment(shared_table_oid(SharedKind::kLong, i), RowExclusiveLock, &s[i])) {
      if (i > 0) close_segment(s[0], RowExclusiveLock);
      return 0;
    }
    read_meta(s[i].map, &meta[i], &entry, kDefaultLane);
  }
  int current = meta[1].open_seq > meta[0].open_seq ? 1 : 0;
  int other = 1 - current;
  int moved = 0;
  bool pushed = push_snapshot_if_none();
  if (meta[other].lane_count > 0)
    moved = empty_long_segment(s[other], force);
  else if (segment_size(s[current]) >= kLongBytes)
    (void)open_map(s[other].map, meta[current].open_seq + 1);
  if (pushed) PopActiveSnapshot();
  for (const Segment& one : s) close_segment(one, moved > 0 ? NoLock : RowExclusiveLock);
  return moved;
}

}  // namespace baton
