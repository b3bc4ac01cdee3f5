// See due.hpp. Locks: the tables are opened conditionally, nobody is waited for; a table that cannot be had now is read in the
// next round. Pages are copied under a shared lock; what was seen is checked again when it is moved.
#include "due.hpp"

#include "../pg/clock.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "move.hpp"
#include "resolve.hpp"

namespace baton {
namespace {

constexpr int64 kLookAgain = kDueAhead + USECS_PER_SEC;  // the mover takes what is due by now + kDueAhead
constexpr int64 kLateAfter = USECS_PER_SEC;

struct LaneProgress {
  TimestampTz read_for;  // start of the time for which the lane was read to its end; 0 = never
  TimestampTz reading_for;  // ... is being read
  BlockNumber next;      // page to go on with
  BlockNumber low;       // pages before it have nothing unsettled
};

struct TableProgress {
  RelNumber map;
  LaneProgress lanes[kWheelMostLanes + 1];
};

struct LaneToRead {
  TimestampTz start;
  BlockNumber first;
  uint32 lane;
  uint8 table;
};

}  // namespace

struct DueFinder {
  MemoryContext context;
  int32 only_queue;
  uint32 restarts;
  TimestampTz next_lane;  // start of the next lane that has pages, as seen by the last look
  bool more;
  bool has_read;
  TableProgress* tables[kWheelTables];  // made when a table has lanes
  DueMessage* heap;                     // binary, earliest first
  int64 count;
  int64 capacity;
};

DueFinder* make_due_finder(MemoryContext context, int32 only_queue) {
  auto* f = static_cast<DueFinder*>(MemoryContextAllocZero(context, sizeof(DueFinder)));
  f->context = context;
  f->only_queue = only_queue;
  f->next_lane = kNever;
  f->restarts = due_restarts();
  return f;
}

int32 due_finder_queue(const DueFinder* finder) { return finder->only_queue; }
bool due_finder_has_read(const DueFinder* finder) { return finder->has_read; }

// ---- the heap

void put_due(DueFinder* f, const DueMessage& message, TimestampTz at) {
  if (f->count == f->capacity) {
    int64 wanted = Max(f->capacity * 2, INT64CONST(256));
    Size size = mul_size(static_cast<Size>(wanted), sizeof(DueMessage));
    f->heap = static_cast<DueMessage*>(f->heap ? repalloc_huge(f->heap, size) : MemoryContextAllocHuge(f->context, size));
    f->capacity = wanted;
  }
  int64 i = f->count++;
  while (i > 0) {
    int64 parent = (i - 1) / 2;
    if (f->heap[parent].at <= at) break;
    f->heap[i] = f->heap[parent];
    i = parent;
  }
  f->heap[i] = message;
  f->heap[i].at = at;
}

bool take_due(DueFinder* f, TimestampTz until, DueMessage* out) {
  if (f->count == 0 || f->heap[0].at > until) return false;
  *out = f->heap[0];
  DueMessage last = f->heap[--f->count];
  int64 i = 0;
  for (;;) {
    int64 child = 2 * i + 1;
    if (child >= f->count) break;
    if (child + 1 < f->count && f->heap[child + 1].at < f->heap[child].at) child++;
    if (last.at <= f->heap[child].at) break;
    f->heap[i] = f->heap[child];
    i = child;
  }
  if (f->count > 0) f->heap[i] = last;
  // What one wave of a million needed is not kept for good.
  if (f->count == 0 && f->capacity > 65536) {
    pfree(f->heap);
    f->heap = nullptr;
    f->capacity = 0;
  }
  return true;
}

TimestampTz finder_next(const DueFinder* f) {
  if (f->more) return 0;
  return f->count > 0 ? Min(f->heap[0].at, f->next_lane) : f->next_lane;
}

namespace {

// ---- reading lanes

bool try_open_bucket(int table, LOCKMODE lock, Segment* s) {
  Oid oid = shared_table_oid(SharedKind::kLater, table);
  if (!OidIsValid(oid) || !ConditionalLockRelationOid(oid, lock)) return false;
  s->heap = try_relation_open(oid, NoLock);
  if (!s->heap) {
    UnlockRelationOid(oid, lock);
    return false;
  }
  Oid map_oid = find_map(s->heap);
  if (!OidIsValid(map_oid) || !ConditionalLockRelationOid(map_oid, lock)) {
    relation_close(s->heap, lock);
    return false;
  }
  s->map = index_open(map_oid, NoLock);
  return true;
}

// A rebuilt or truncated map begins anew, and what is in the heap of it is found to be stale when it is moved.
TableProgress* progress_of(DueFinder* f, int table, RelNumber map) {
  TableProgress* t = f->tables[table];
  if (!t) t = f->tables[table] = static_cast<TableProgress*>(MemoryContextAlloc(f->context, sizeof(TableProgress)));
  else if (t->map == map) return t;
  memset(t, 0, sizeof(TableProgress));
  for (LaneProgress& l : t->lanes) l.next = l.low = InvalidBlockNumber;
  t->map = map;
  return t;
}

int latest_first(const void* a, const void* b) {
  auto* x = static_cast<const LaneToRead*>(a);
  auto* y = static_cast<const LaneToRead*>(b);
  if (x->start != y->start) return x->start > y->start ? -1 : 1;
  return 0;
}

// Lanes of one table that have to be read, added to the list; notes when the next one begins.
int lanes_to_read(DueFinder* f, int table, TimestampTz until, LaneToRead* out) {
  Segment s;
  if (!try_open_bucket(table, AccessShareLock, &s)) return 0;
  auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
  int n = RelationGetNumberOfBlocks(s.map) > 0 ? list_lanes(s.map, lanes, kMaxLanes) : 0;
  int count = 0;
  if (n > 0) {
    TableProgress* t = progress_of(f, table, rel_number(s.map));
    int64 turn = wheel_level(table).window * kWheelTablesPerLevel;
    for (int i = 0; i < n; i++) {
      uint32 lane = lanes[i].lane;
      if (lane < 1 || lane > static_cast<uint32>(kWheelMostLanes)) continue;
      TimestampTz start = wheel_lane_start(table, lane, until);
      f->next_lane = Min(f->next_lane, start + turn);
      if (t->lanes[lane].read_for != start) out[count++] = LaneToRead{start, lanes[i].first, lane, static_cast<uint8>(table)};
    }
  }
  pfree(lanes);
  close_segment(s, AccessShareLock);
  return count;
}

// True if the page has anything that is not settled for good.
bool read_due_page(DueFinder* f, const Segment& s, const LaneToRead& lane, BlockNumber block, PageCopy* copy) {
  resolve_copy(s.heap, copy);
  TimestampTz now = clock_now();
  TimestampTz end = lane.start + wheel_level(lane.table).lane;
  bool unsettled = copy->count < kSlotsPerPage;
  for (int i = 0; i < copy->count; i++) {
    const Slot& slot = copy->resolved[i];
    TimestampTz at = slot.deadline;
    switch (slot_phase(slot, copy->status[i], now)) {
      case SlotPhase::kDue:
      case SlotPhase::kLater:
        break;
      case SlotPhase::kNothing:
      case SlotPhase::kForeign:
        continue;
      default:
        at = now + kLookAgain;  // somebody is still at it
        break;
    }
    unsettled = true;
    // Of a later turn of the wheel; what is due is due, wherever plain SQL has put it.
    if (slot.deadline >= end && slot.deadline > now) continue;
    if (f->only_queue != 0 && f->only_queue != static_cast<int32>(slot.key_hash)) continue;
    put_due(f, DueMessage{0, static_cast<int32>(slot.key_hash), block, lane.table, static_cast<uint8>(i)}, at);
  }
  return unsettled;
}

// Returns the pages read; *finished: to the lane's end.
int read_lane(DueFinder* f, const LaneToRead& lane, int pages, PageCopy* copy, bool* finished) {
  *finished = false;
  Segment s;
  if (!try_open_bucket(lane.table, AccessShareLock, &s)) return 0;
  int read = 0;
  TableProgress* t = f->tables[lane.table];
  if (t && t->map == rel_number(s.map)) {
    LaneProgress* l = &t->lanes[lane.lane];
    if (l->reading_for != lane.start) {
      l->reading_for = lane.start;
      l->next = BlockNumberIsValid(l->low) ? l->low : lane.first;
      l->low = InvalidBlockNumber;
    }
    while (BlockNumberIsValid(l->next) && read < pages) {
      CHECK_FOR_INTERRUPTS();
      BlockNumber block = l->next;
      if (!copy_slots(s.map, block, 0, kSlotsPerPage, nullptr, copy)) break;
      read++;
      if (read_due_page(f, s, lane, block, copy) && !BlockNumberIsValid(l->low)) l->low = block;
      write_resolved(s.map, block, copy);
      l->next = copy->next;
    }
    *finished = !BlockNumberIsValid(l->next);
    if (*finished) l->read_for = lane.start;
  }
  close_segment(s, AccessShareLock);
  return read;
}

}  // namespace

bool read_due_lanes(DueFinder* f, TimestampTz until, int pages) {
  uint32 restarts = due_restarts();
  if (restarts != f->restarts) {
    f->restarts = restarts;
    for (TableProgress* t : f->tables)
      if (t) t->map = 0;
    f->count = 0;
  }
  bool pushed = push_snapshot_if_none();
  // A claimer knows of its own queue only: what it finds must not hide what is due in others. That there is nothing at all
  // it may say.
  if (f->only_queue == 0) begin_due_look();
  TimestampTz hinted = due_next();
  f->next_lane = kNever;
  auto* lanes = static_cast<LaneToRead*>(palloc(sizeof(LaneToRead) * kWheelTables * kWheelMostLanes));
  int n = 0;
  for (int table = 0; table < kWheelTables; table++) n += lanes_to_read(f, table, until, lanes + n);
  qsort(lanes, static_cast<size_t>(n), sizeof(LaneToRead), latest_first);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  int left = pages;
  f->more = false;
  f->has_read = true;
  for (int i = 0; i < n; i++) {
    bool finished = false;
    if (left > 0) left -= read_lane(f, lanes[i], left, copy, &finished);
    if (!finished) f->more = true;
  }
  pfree(copy);
  pfree(lanes);
  if (pushed) PopActiveSnapshot();
  if (f->only_queue == 0)
    end_due_look(finder_next(f));
  else if (f->next_lane == kNever)
    replace_due(hinted, kNever);
  return !f->more;
}

int move_due_messages(DueFinder* f, int32 queue_id, int table, DueMessage* messages, int count) {
  TimestampTz now = clock_now();
  Queue* queue = find_queue_by_id(queue_id);
  Segment s;
  if ((queue && !queue->at_home) || !try_open_bucket(table, RowExclusiveLock, &s)) {
    for (int i = 0; i < count; i++) put_due(f, messages[i], now + 2 * kLookAgain);
    return 0;
  }
  bool pushed = push_snapshot_if_none();
  auto* items = static_cast<MoveItem*>(palloc(sizeof(MoveItem) * static_cast<Size>(count)));
  int* number = static_cast<int*>(palloc(sizeof(int) * static_cast<Size>(count)));
  bool* moved = static_cast<bool*>(palloc(static_cast<Size>(count)));
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(s.map);
  BlockNumber copied = InvalidBlockNumber;
  int n = 0;
  for (int i = 0; i < count; i++) {
    const DueMessage& m = messages[i];
    // The map was truncated since: the place is nobody's now.
    if (m.block >= blocks) continue;
    if (m.block != copied) {
      copied = InvalidBlockNumber;
      if (!copy_slots(s.map, m.block, 0, kSlotsPerPage, nullptr, copy)) continue;
      resolve_copy(s.heap, copy);
      copied = m.block;
    }
    if (m.index >= copy->count) continue;
    const Slot& slot = copy->resolved[m.index];
    switch (slot_phase(slot, copy->status[m.index], now)) {
      case SlotPhase::kDue:
      case SlotPhase::kLater:
        if (static_cast<int32>(slot.key_hash) != queue_id || slot.deadline > now + kDueAhead) {
          put_due(f, m, Max(slot.deadline, now + kLookAgain));
          break;
        }
        items[n] = MoveItem{slot, Place{m.block, m.index}, slot.deadline};
        number[n++] = i;
        break;
      case SlotPhase::kNothing:
      case SlotPhase::kForeign:
        break;
      default:
        put_due(f, m, now + kLookAgain);
        break;
    }
  }
  int done = 0;
  if (n > 0 && queue) {
    done = move_messages(queue, s, items, n, MoveTarget::kQueue, moved);
    for (int i = 0; i < n; i++) {
      if (moved[i]) continue;
      // Locked by plain SQL, or not seen by our snapshot; or its row is gone, and then only its slot is left.
      if (row_is_live(s.heap, items[i].slot))
        put_due(f, messages[number[i]], now + kLookAgain);
      else
        purge_slots(s, &items[i], 1);
    }
  } else {
    for (int i = 0; i < n; i++) {
      if (row_is_live(s.heap, items[i].slot))
        put_due(f, messages[number[i]], now + 2 * kLookAgain);
      else
        purge_slots(s, &items[i], 1);
    }
  }
  pfree(copy);
  pfree(items);
  if (pushed) PopActiveSnapshot();
  close_segment(s, NoLock);
  return done;
}

// ---- a claimer's help

bool mover_is_late(TimestampTz now) { return shared && now >= due_next() + kLateAfter; }

int help_with_due(Queue* queue, int most) {
  static DueFinder* finder = nullptr;
  static MemoryContext context = nullptr;
  constexpr int kPages = 64;
  if (!OidIsValid(shared_table_oid(SharedKind::kLater, 0))) return 0;
  if (finder && due_finder_queue(finder) != queue->id) {
    finder = nullptr;
    MemoryContextReset(context);
  }
  if (!context) context = AllocSetContextCreate(TopMemoryContext, "pg_baton due messages", ALLOCSET_DEFAULT_SIZES);
  if (!finder) finder = make_due_finder(context, queue->id);
  TimestampTz now = clock_now();
  (void)read_due_lanes(finder, now, kPages);
  auto* batch = static_cast<DueMessage*>(palloc(sizeof(DueMessage) * static_cast<Size>(most)));
  int n = 0;
  int done = 0;
  DueMessage m;
  int32 id = queue->id;
  while (n < most && take_due(finder, now, &m)) {
    if (n > 0 && batch[n - 1].table != m.table) {
      done += move_due_messages(finder, id, batch[n - 1].table, batch, n);
      most -= n;
      n = 0;
    }
    batch[n++] = m;
    // Should this transaction be rolled back, the message is where it was.
    put_due(finder, m, now + 2 * kLookAgain);
  }
  if (n > 0) done += move_due_messages(finder, id, batch[n - 1].table, batch, n);
  pfree(batch);
  return done;
}

}  // namespace baton
