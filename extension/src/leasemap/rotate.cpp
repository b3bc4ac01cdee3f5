// Rotation. A segment is truncated when every message in it is settled for good, the leases that its tokens were told are
// over, and no snapshot anywhere is old enough to see one of its rows. Under a pinned horizon, when the ring has no room
// left, it is truncated without the last condition: the guard in the new metapage (guard.cpp) makes a reader with an
// older snapshot fail loudly instead of finding nothing. The other truncations leave a guard too: no reader here is old
// enough to meet it, but one on a standby, whose snapshots our horizon need not know, may be.
//
// Locks: heap, map, TOAST table and every other index are locked AccessExclusive before anything is changed, each
// conditionally: nobody is waited for, and who waits for us does so for one reading of the map. Everything is verified
// again once all locks are held; only that counts. An enqueuer keeps its lock on the heap to the end of its transaction,
// prepared ones too, so an open enqueue cannot be missed. Crash safety is PostgreSQL's own: TRUNCATE is transactional, and
// hints are keyed by the file number that changes with it.
#include "rotate.hpp"

#include "../core/keep.hpp"
#include "../core/lane.hpp"
#include "../core/wheel.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/errors.hpp"
#include "../pg/xid_status.hpp"
#include "../sqlfn/hold_rotation.hpp"
#include "drain.hpp"
#include "ring.hpp"
#include "shared_tables.hpp"
#include "try_lock.hpp"

namespace baton {
namespace {

constexpr int64 kWorthAtOnce = 1024 * 1024;          // a shared table of this size is reclaimed as soon as it may be,
constexpr int64 kIdleShared = 3600 * USECS_PER_SEC;  // a smaller one when it has been drained for this long

// ---- the decision

enum class Fate { kStays, kGoes, kForced };

SegmentFacts facts_of(Relation heap, const RingMember& m, const Drain& d, bool ring_full, TimestampTz drained_at) {
  SegmentFacts f;
  memset(&f, 0, sizeof(f));
  f.unsettled = d.unsettled;
  f.deadline_ahead = d.last_deadline > clock_now();
  f.rows_needed = d.rows_needed;
  // An earlier guard is for snapshots that are older than it: it stays until they are gone.
  f.newest_xid = Max(d.newest_xid, m.guard_xid);
  f.horizon = full_xid_of(GetOldestNonRemovableTransactionId(heap));
  f.ring_full = ring_full;
  f.moved = d.moved;
  f.drained_us = GetCurrentTimestamp() - drained_at;
  f.grace_us = static_cast<int64>(rotate_grace_ms) * 1000;
  return f;
}

bool is_too_small(const Segment& s, TimestampTz drained_at) {
  return segment_size(s) < kWorthAtOnce && GetCurrentTimestamp() - drained_at < kIdleShared;
}

// Asked once without and once with the locks. *guard: what a reader must see as over to be safe, unless kForced.
Fate fate_of(const SegmentFacts& f, bool purged, uint64* guard) {
  if (keep_segment(f) != Keep::kNothing) return Fate::kStays;
  *guard = purged ? f.horizon - 1 : f.newest_xid;
  return horizon_passed(f) ? Fate::kGoes : Fate::kForced;
}

void truncate_segment(Relation heap, Fate fate, uint64 guard) {
  Oid map_oid = find_map(heap);
  truncate_as_owner(heap);
  ereport(DEBUG1, (errmsg_internal("truncated \"%s\": every message in it is settled for good and no lease of theirs runs, %s", RelationGetRelationName(heap),
                                   fate == Fate::kForced ? "the ring is full, and the grace for older snapshots is over" : "and every snapshot is newer")));
  if (fate == Fate::kForced) guard = U64FromFullTransactionId(GetTopFullTransactionId());
  if (guard == 0) return;
  Relation map = index_open(map_oid, NoLock);
  set_guard_xid(map, guard);
  index_close(map, NoLock);
}

// ring_full: of a queue's own segment. shared_table: of all queues, which is left alone while it is small. *left: something
// is left in it.
bool rotate_segment(const RingMember& m, bool ring_full, bool shared_table, bool* left) {
  Segment s;
  if (!try_open_segment(m.heap, AccessShareLock, &s)) return false;
  bool truncated = false;
  DrainNote note = read_drain_note(m.rel);
  Drain d = rel_number(s.map) == m.rel ? look_at_map(s.heap, s.map, note.unsettled_at) : kUnknownDrain;
  bool drained = d.unsettled == Keep::kNothing;
  *left |= !drained;
  TimestampTz drained_at = drained && note.drained_at != 0 ? note.drained_at : GetCurrentTimestamp();
  if (!drained || note.drained_at == 0) {
    note.drained_at = drained ? drained_at : 0;
    note.unsettled_at = d.unsettled_at;
    write_drain_note(note);
  }
  bool rows_needed = d.rows_needed;
  SegmentFacts facts = facts_of(s.heap, m, d, ring_full, drained_at);
  facts.too_small = shared_table && is_too_small(s, drained_at);
  Oid map_oid = RelationGetRelid(s.map);
  index_close(s.map, AccessShareLock);
  Locks locks;
  locks.count = 0;
  uint64 guard = 0;
  if (fate_of(facts, d.purged, &guard) != Fate::kStays) {
    if (try_lock_table(&locks, s.heap) && find_map(s.heap) == map_oid) {
      CheckTableNotInUse(s.heap, "TRUNCATE");
      debug_here("rotate_locked");
      Relation map = index_open(map_oid, NoLock);
      MapMeta meta;
      LaneDirectoryEntry entry;
      read_meta(map, &meta, &entry, kDefaultLane);
      bool same = rel_number(map) == m.rel && meta.epoch == m.epoch && meta.open_seq == m.open_seq;
      // Rows deleted by plain SQL were asked before: whoever could not see one then cannot see it now.
      d = same ? look_at_map(nullptr, map, InvalidBlockNumber) : kUnknownDrain;
      d.rows_needed = rows_needed;
      index_close(map, NoLock);
      Fate fate = same ? fate_of(facts_of(s.heap, m, d, ring_full, drained_at), d.purged, &guard) : Fate::kStays;
      if (fate != Fate::kStays) {
        truncate_segment(s.heap, fate, guard);
        debug_here("rotate_truncated");
        truncated = true;
      }
    }
    if (!truncated) unlock_all(&locks);
  }
  relation_close(s.heap, truncated ? NoLock : AccessShareLock);
  return truncated;
}

int rotate_ring(const Queue& q, QueueHint* hint, TimestampTz now, bool* left) {
  Ring ring;
  if (!look_at_ring(q, &ring)) return 0;
  int truncated = 0;
  while (RingMember* oldest = next_candidate(&ring)) {
    if (!rotate_segment(*oldest, ring.full, false, left)) continue;
    truncated++;
    ring.full = false;  // there is room now
    pg_atomic_write_u64(&hint->rotated_at, static_cast<uint64>(now));
    if (rotate_min_interval_ms > 0) break;
  }
  return truncated;
}

// The tables that hold or have held something. Returns how many.
int used_shared_tables(RingMember* out) {
  int n = 0;
  const SharedKind kinds[] = {SharedKind::kLater, SharedKind::kLong};
  for (SharedKind kind : kinds) {
    for (int i = 0; i < (kind == SharedKind::kLater ? kWheelTables : kLongTables); i++) {
      Segment s;
      if (!try_open_segment(shared_table_oid(kind, i), AccessShareLock, &s)) continue;
      MapMeta meta;
      LaneDirectoryEntry entry;
      read_meta(s.map, &meta, &entry, kDefaultLane);
      if (meta.lane_count > 0) out[n++] = RingMember{true, RelationGetRelid(s.heap), meta.open_seq, meta.epoch, meta.guard_xid, rel_number(s.map)};
      close_segment(s, AccessShareLock);
    }
  }
  return n;
}

bool was_just_now(QueueHint* hint, TimestampTz now) {
  auto last = static_cast<TimestampTz>(pg_atomic_read_u64(&hint->rotated_at));
  return last != 0 && now - last < static_cast<int64>(rotate_min_interval_ms) * 1000;
}

}  // namespace

Keep segment_kept_by(Queue* queue, int n, TimestampTz* until) {
  Queue q = *queue;
  *until = 0;
  TimestampTz now = GetCurrentTimestamp();
  Ring ring;
  Segment s;
  // Whoever has locked a segment against looking keeps the whole ring.
  if (!look_at_ring(q, &ring) || !try_open_segment(ring.members[n].heap, AccessShareLock, &s)) return Keep::kOpenTransaction;
  const RingMember& m = ring.members[n];
  Keep keep = Keep::kEmpty;
  if (m.open_seq > 0) {
    DrainNote note = read_drain_note(m.rel);
    Drain d = look_at_map(s.heap, s.map, note.unsettled_at);
    SegmentFacts f = facts_of(s.heap, m, d, ring.full, note.drained_at != 0 ? note.drained_at : now);
    f.newest = n == ring.newest;
    f.rotation_held = q.rotation_held_until > clock_now();
    f.too_soon = was_just_now(queue_hint(MyDatabaseId, q.id), now);
    keep = keep_segment(f);
    if (keep == Keep::kDeadline) *until = d.last_deadline;
    if (keep == Keep::kRotationHeld) *until = q.rotation_held_until;
  }
  close_segment(s, AccessShareLock);
  return keep;
}

Keep shared_kept_by(Oid heap, TimestampTz* until) {
  *until = 0;
  Segment s;
  if (!try_open_segment(heap, AccessShareLock, &s)) return Keep::kOpenTransaction;
  TimestampTz now = GetCurrentTimestamp();
  MapMeta meta;
  LaneDirectoryEntry entry;
  read_meta(s.map, &meta, &entry, kDefaultLane);
  Keep keep = Keep::kEmpty;
  if (meta.lane_count > 0) {
    RingMember m{true, heap, meta.open_seq, meta.epoch, meta.guard_xid, rel_number(s.map)};
    DrainNote note = read_drain_note(m.rel);
    Drain d = look_at_map(s.heap, s.map, note.unsettled_at);
    TimestampTz drained_at = note.drained_at != 0 ? note.drained_at : now;
    TimestampTz held_until = read_queue_holds().rotation_until;
    SegmentFacts f = facts_of(s.heap, m, d, false, drained_at);
    f.rotation_held = held_until > clock_now();
    f.too_small = is_too_small(s, drained_at);
    f.too_soon = was_just_now(queue_hint(MyDatabaseId, 0), now);
    keep = keep_segment(f);
    if (keep == Keep::kDeadline) *until = d.last_deadline;
    if (keep == Keep::kRotationHeld) *until = held_until;
  }
  close_segment(s, AccessShareLock);
  return keep;
}

int rotate_shared_tables() {
  QueueHint* hint = queue_hint(MyDatabaseId, 0);  // no queue has this number
  TimestampTz now = GetCurrentTimestamp();
  RingMember tables[kWheelTables + kLongTables];
  int count = was_just_now(hint, now) ? 0 : used_shared_tables(tables);
  if (count == 0 || !no_rotation_is_held()) return 0;
  int truncated = 0;
  bool left = false;
  for (int i = 0; i < count; i++) {
    if (!rotate_segment(tables[i], false, true, &left)) continue;
    truncated++;
    pg_atomic_write_u64(&hint->rotated_at, static_cast<uint64>(now));
    if (rotate_min_interval_ms > 0) break;
  }
  return truncated;
}

int rotate_queue(Queue* queue, bool* left) {
  bool any = false;
  if (!left) left = &any;
  *left = false;
  // The cached definition can be loaded anew whenever a lock is taken.
  Queue q = *queue;
  QueueHint* hint = queue_hint(MyDatabaseId, q.id);
  TimestampTz now = GetCurrentTimestamp();
  if (was_just_now(hint, now)) return 0;
  // The lock of those who change the definition: whoever is about to hold rotation waits for a truncation that is under
  // way, and it is seen here whether somebody has.
  if (!ConditionalLockRelationOid(q.view, ShareUpdateExclusiveLock)) return 0;
  queue = find_queue_by_id(q.id);
  bool held = !queue || queue->rotation_held_until > clock_now();
  int truncated = held ? 0 : rotate_ring(q, hint, now, left);
  if (truncated == 0) UnlockRelationOid(q.view, ShareUpdateExclusiveLock);
  return truncated;
}

}  // namespace baton

BATON_SQL_FUNCTION(baton_rotate) {
  using namespace baton;
  require_writable("rotate()");
  Queue* queue = find_queue(PG_GETARG_TEXT_PP(0));
  if (!object_owner_is_me(RelationRelationId, queue->view))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\"", queue->name)));
  PG_RETURN_INT32(rotate_queue(queue));
}
