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
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"

namespace baton {
namespace {

constexpr int kNoteBucket = 8;
constexpr int kMostLocks = 32;

// ---- what is remembered between two looks: since when a segment has been drained, and where it was not

DrainNote* bucket(RelNumber rel) {
  uint32 h = hash_combine(murmurhash32(MyDatabaseId), murmurhash32(rel));
  return &shared->drains[h % (kDrainNotes / kNoteBucket) * kNoteBucket];
}

DrainNote read_note(RelNumber rel) {
  DrainNote note{InvalidOid, rel, 0, 0, InvalidBlockNumber};
  const DrainNote* b = bucket(rel);
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  for (int i = 0; i < kNoteBucket; i++)
    if (b[i].database == MyDatabaseId && b[i].rel == rel) note = b[i];
  LWLockRelease(shared->worker_lock);
  return note;
}

void write_note(RelNumber rel, TimestampTz drained_at, BlockNumber unsettled_at) {
  DrainNote* b = bucket(rel);
  TimestampTz now = GetCurrentTimestamp();
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  DrainNote* place = nullptr;
  for (int i = 0; i < kNoteBucket; i++) {
    if (b[i].database == MyDatabaseId && b[i].rel == rel) {
      place = &b[i];
      break;
    }
    if (!place || !OidIsValid(b[i].database) || (OidIsValid(place->database) && b[i].last_used < place->last_used)) place = &b[i];
  }
  *place = DrainNote{MyDatabaseId, rel, drained_at, now, unsettled_at};
  LWLockRelease(shared->worker_lock);
}

// ---- reading a map

struct Drain {
  Keep unsettled;            // why a slot is not settled for good; kNothing: all are
  BlockNumber unsettled_at;  // if not
  uint64 newest_xid;         // of any settlement or rolled back enqueue
  TimestampTz last_deadline;  // of a lease that a token was told
  bool moved;                // something was moved away from here
  bool purged;               // rows were deleted by plain SQL, by transactions that the slots do not know
  bool rows_needed;          // ... and one of them is still visible to somebody
};

// Of a map that has changed under our eyes.
constexpr Drain kUnknown{Keep::kUnsettled, InvalidBlockNumber, 0, 0, false, false, false};

void note_settled(const Slot& s, Drain* d) {
  if (slot_xid(s) > d->newest_xid) d->newest_xid = slot_xid(s);
  // Without a claim the field is a due time.
  if (s.nonce != 0 && s.held_ms != 0 && s.deadline > d->last_deadline) d->last_deadline = s.deadline;
  if (slot_kind(s) == SettleKind::kMoved) d->moved = true;
}

// The slot of a row that plain SQL deleted does not know the deleter: the row has to say whether anybody can see it.
bool row_is_needed(Relation heap, const ItemPointerData& tid) {
  if (ItemPointerGetBlockNumberNoCheck(&tid) >= RelationGetNumberOfBlocks(heap)) return false;
  SnapshotData snapshot;
  InitNonVacuumableSnapshot(snapshot, GlobalVisTestFor(heap));
  TupleTableSlot* row = table_slot_create(heap, nullptr);
  ItemPointerData t = tid;
  bool needed = table_tuple_fetch_row_version(heap, &t, &snapshot, row);
  ExecDropSingleTupleTableSlot(row);
  return needed;
}

// Why the first slot that is not settled for good is not: the transaction it names, its claim, or nobody has it yet.
Keep unsettled_why(const Slot& s) {
  if (slot_has_open_xid(s)) return Keep::kOpenTransaction;
  return slot_state(s) == SlotState::kClaimed ? Keep::kClaim : Keep::kUnsettled;
}

// Why something on the page is not settled for good; kNothing: all is. heap may be null: then rows are not asked.
Keep look_at_block(Relation heap, Relation map, BlockNumber block, BufferAccessStrategy strategy, Drain* d) {
  Slot open[kSlotsPerPage];
  ItemPointerData purged[kSlotsPerPage];
  int open_count = 0;
  int purged_count = 0;
  Keep unsettled = Keep::kNothing;
  Buffer buf = ReadBufferExtended(map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  Page page = BufferGetPage(buf);
  if (page_is_map_page(page)) {
    const Slot* slots = map_slots(page);
    int n = map_slot_count(page);
    for (int i = 0; i < n && unsettled == Keep::kNothing; i++) {
      const Slot& s = slots[i];
      if (slot_has_open_xid(s)) {
        open[open_count++] = s;
      } else if (slot_is_unsettled(s)) {
        unsettled = unsettled_why(s);
      } else if (slot_state(s) == SlotState::kGone) {
        note_settled(s, d);
        ItemPointerData tid = slot_tid(s);
        if (slot_kind(s) == SettleKind::kPurged && ItemPointerIsValid(&tid)) {
          d->purged = true;
          if (heap) purged[purged_count++] = tid;
        }
      }
    }
  }
  UnlockReleaseBuffer(buf);
  if (unsettled != Keep::kNothing) return unsettled;
  uint64 known_xid = 0;
  XidStatus known = XidStatus::kInProgress;
  for (int i = 0; i < open_count; i++) {
    Slot& s = open[i];
    if (slot_xid(s) != known_xid) {
      known_xid = slot_xid(s);
      known = xid_status(known_xid);
    }
    // Too old for the commit log: a sweep asks the row and writes the outcome down.
    resolve_slot(s, known);
    if (slot_is_unsettled(s)) return unsettled_why(s);
    note_settled(s, d);
  }
  for (int i = 0; i < purged_count && !d->rows_needed; i++) d->rows_needed = row_is_needed(heap, purged[i]);
  return Keep::kNothing;
}

Drain look_at_map(Relation heap, Relation map, BlockNumber look_first) {
  Drain d{Keep::kNothing, InvalidBlockNumber, 0, 0, false, false, false};
  BlockNumber blocks = RelationGetNumberOfBlocks(map);
  if (BlockNumberIsValid(look_first) && look_first < blocks) {
    Drain scratch = d;
    d.unsettled = look_at_block(nullptr, map, look_first, nullptr, &scratch);
    if (d.unsettled != Keep::kNothing) {
      d.unsettled_at = look_first;
      return d;
    }
  }
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  for (BlockNumber b = kMetaBlock + 1; b < blocks && d.unsettled == Keep::kNothing; b++) {
    CHECK_FOR_INTERRUPTS();
    d.unsettled = look_at_block(heap, map, b, strategy, &d);
    if (d.unsettled != Keep::kNothing) d.unsettled_at = b;
  }
  FreeAccessStrategy(strategy);
  return d;
}

// ---- relations, without waiting

bool try_open(Oid heap_oid, Segment* s) {
  s->heap = nullptr;
  s->map = nullptr;
  if (!OidIsValid(heap_oid) || !ConditionalLockRelationOid(heap_oid, AccessShareLock)) return false;
  s->heap = try_relation_open(heap_oid, NoLock);
  if (!s->heap) {
    UnlockRelationOid(heap_oid, AccessShareLock);
    return false;
  }
  Oid map_oid = find_map(s->heap);
  if (!OidIsValid(map_oid) || !ConditionalLockRelationOid(map_oid, AccessShareLock)) {
    relation_close(s->heap, AccessShareLock);
    return false;
  }
  s->map = index_open(map_oid, NoLock);
  return true;
}

struct Locks {
  Oid relations[kMostLocks];
  int count;
};

bool try_lock(Locks* l, Oid relation) {
  if (l->count == kMostLocks || !ConditionalLockRelationOid(relation, AccessExclusiveLock)) return false;
  l->relations[l->count++] = relation;
  return true;
}

void unlock_all(Locks* l) {
  while (l->count > 0) UnlockRelationOid(l->relations[--l->count], AccessExclusiveLock);
}

bool try_lock_indexes(Locks* l, Relation table) {
  List* indexes = RelationGetIndexList(table);
  bool ok = true;
  ListCell* cell;
  foreach (cell, indexes) {
    ok = try_lock(l, lfirst_oid(cell));
    if (!ok) break;
  }
  list_free(indexes);
  return ok;
}

// All that TRUNCATE would otherwise wait for.
bool try_lock_segment(Locks* l, Relation heap) {
  if (!try_lock(l, RelationGetRelid(heap)) || !try_lock_indexes(l, heap)) return false;
  Oid toast_oid = heap->rd_rel->reltoastrelid;
  if (!OidIsValid(toast_oid)) return true;
  if (!try_lock(l, toast_oid)) return false;
  Relation toast = try_relation_open(toast_oid, NoLock);
  if (!toast) return false;
  bool ok = try_lock_indexes(l, toast);
  relation_close(toast, NoLock);
  return ok;
}

// ---- the decision

struct Member {
  bool candidate;
  Oid heap;
  uint64 open_seq;
  uint64 epoch;
  uint64 guard_xid;
  RelNumber rel;
};

struct Ring {
  Member members[kMaxSegments];
  int count;
  bool full;  // the newest is over its size and no other is empty
};

// False when a segment cannot be looked at now: then it is not known which one is the newest.
bool look_at_ring(const Queue& queue, Ring* ring) {
  ring->count = queue.segment_count;
  int newest = -1;
  bool any_empty = false;
  int64 newest_bytes = 0;
  for (int i = 0; i < ring->count; i++) {
    Segment s;
    if (!try_open(queue.heap[i], &s)) return false;
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(s.map, &meta, &entry, kDefaultLane);
    ring->members[i] = Member{meta.open_seq > 0, queue.heap[i], meta.open_seq, meta.epoch, meta.guard_xid, rel_number(s.map)};
    if (meta.open_seq == 0) any_empty = true;
    // As enqueue decides it: the first of those with the highest number.
    if (meta.open_seq > 0 && (newest < 0 || meta.open_seq > ring->members[newest].open_seq)) {
      newest = i;
      newest_bytes = static_cast<int64>(RelationGetNumberOfBlocks(s.heap)) * BLCKSZ;
    }
    close_segment(s, AccessShareLock);
  }
  if (newest >= 0) ring->members[newest].candidate = false;
  ring->full = newest >= 0 && !any_empty && newest_bytes >= queue.segment_bytes;
  return true;
}

enum class Fate { kStays, kGoes, kForced };

// Asked once without and once with the locks. *guard: what a reader must see as over to be safe, unless kForced.
Fate fate_of(Relation heap, const Member& m, const Drain& d, bool ring_full, TimestampTz drained_at, uint64* guard) {
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
  if (keep_segment(f) != Keep::kNothing) return Fate::kStays;
  *guard = d.purged ? f.horizon - 1 : f.newest_xid;
  return horizon_passed(f) ? Fate::kGoes : Fate::kForced;
}

void truncate_segment(Relation heap, Fate fate, uint64 guard) {
  Oid user;
  int security;
  GetUserIdAndSecContext(&user, &security);
  int guc_level = NewGUCNestLevel();
  Oid map_oid = find_map(heap);
  SetUserIdAndSecContext(heap->rd_rel->relowner, security | SECURITY_RESTRICTED_OPERATION);
  truncate_table(heap);
  AtEOXact_GUC(false, guc_level);
  SetUserIdAndSecContext(user, security);
  CommandCounterIncrement();
  if (fate == Fate::kForced) guard = U64FromFullTransactionId(GetTopFullTransactionId());
  if (guard == 0) return;
  Relation map = index_open(map_oid, NoLock);
  set_guard_xid(map, guard);
  index_close(map, NoLock);
}

bool rotate_segment(const Member& m, bool ring_full) {
  Segment s;
  if (!try_open(m.heap, &s)) return false;
  bool truncated = false;
  DrainNote note = read_note(m.rel);
  Drain d = rel_number(s.map) == m.rel ? look_at_map(s.heap, s.map, note.unsettled_at) : kUnknown;
  bool drained = d.unsettled == Keep::kNothing;
  TimestampTz drained_at = drained && note.drained_at != 0 ? note.drained_at : GetCurrentTimestamp();
  if (!drained || note.drained_at == 0) write_note(m.rel, drained ? drained_at : 0, d.unsettled_at);
  bool rows_needed = d.rows_needed;
  Oid map_oid = RelationGetRelid(s.map);
  index_close(s.map, AccessShareLock);
  Locks locks;
  locks.count = 0;
  uint64 guard = 0;
  if (fate_of(s.heap, m, d, ring_full, drained_at, &guard) != Fate::kStays) {
    if (try_lock_segment(&locks, s.heap) && find_map(s.heap) == map_oid) {
      CheckTableNotInUse(s.heap, "TRUNCATE");
      debug_here("rotate_locked");
      Relation map = index_open(map_oid, NoLock);
      MapMeta meta;
      LaneDirectoryEntry entry;
      read_meta(map, &meta, &entry, kDefaultLane);
      bool same = rel_number(map) == m.rel && meta.epoch == m.epoch && meta.open_seq == m.open_seq;
      // Rows deleted by plain SQL were asked before: whoever could not see one then cannot see it now.
      d = same ? look_at_map(nullptr, map, InvalidBlockNumber) : kUnknown;
      d.rows_needed = rows_needed;
      index_close(map, NoLock);
      Fate fate = same ? fate_of(s.heap, m, d, ring_full, drained_at, &guard) : Fate::kStays;
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

}  // namespace

int rotate_queue(Queue* queue) {
  // The cached definition can be loaded anew whenever a lock is taken.
  Queue q = *queue;
  QueueHint* hint = queue_hint(MyDatabaseId, q.id);
  TimestampTz now = GetCurrentTimestamp();
  auto last = static_cast<TimestampTz>(pg_atomic_read_u64(&hint->rotated_at));
  if (last != 0 && now - last < static_cast<int64>(rotate_min_interval_ms) * 1000) return 0;
  Ring ring;
  if (!look_at_ring(q, &ring)) return 0;
  int truncated = 0;
  for (;;) {
    // The one opened first, first.
    Member* oldest = nullptr;
    for (int i = 0; i < ring.count; i++) {
      Member* m = &ring.members[i];
      if (m->candidate && (!oldest || m->open_seq < oldest->open_seq)) oldest = m;
    }
    if (!oldest) break;
    oldest->candidate = false;
    if (!rotate_segment(*oldest, ring.full)) continue;
    truncated++;
    ring.full = false;  // there is room now
    pg_atomic_write_u64(&hint->rotated_at, static_cast<uint64>(now));
    if (rotate_min_interval_ms > 0) break;
  }
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
