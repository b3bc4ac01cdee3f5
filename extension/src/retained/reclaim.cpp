// See reclaim.hpp. In this order:
//
//   1. Without a lock, from the last row backwards: one that is kept ends the look, usually on the first page.
//   2. When none is, that is noted with the id of the noting transaction. Truncation is a later round's: snapshots that
//      are older than the note are waited for, up to the grace.
//   3. The rows are read again under a lock that keeps others from putting in. Nobody does so for a window after that of
//      the table has passed (core/retained_ring.hpp); later, the reading gives way to whoever waits. Then the holds, under a
//      lock that keeps others from changing them. Only that counts.
//   4. The remaining locks, all conditionally, and the truncation with its note; a reader whose snapshot is older than the
//      guard in it gets an error (leasemap/guard.cpp).
//
// All of it is one transaction of ordinary PostgreSQL: a crash leaves the table as it was, or empty.
#include "reclaim.hpp"

#include "../leasemap/try_lock.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/guc.hpp"
#include "../pg/xid_status.hpp"

namespace baton {
namespace {

constexpr BlockNumber kWorthSummingUp = 128;
constexpr BlockNumber kBlocksPerBreath = 32;

// ---- holds

bool is_held(const QueueHolds& h, int32 queue_id) {
  for (int i = 0; i < h.count; i++)
    if (h.held[i] == queue_id) return true;
  return false;
}

bool same_holds(const QueueHolds& a, const QueueHolds& b) {
  return a.count == b.count && (a.count == 0 || memcmp(a.held, b.held, sizeof(int32) * static_cast<Size>(a.count)) == 0);
}

// ---- reading a table

struct Look {
  Keep keep;  // of the first row found that may not go
  bool broken_off;
  TimestampTz newest_drop;  // of the rows that may go
  int32 queue_id;           // of the one that may not
  TimestampTz settled_at;
  TimestampTz drop_at;
  BlockNumber at;
};

// True: a row on the page may not go, and *look says why.
bool look_at_page(Relation table, Page page, Buffer buf, const QueueHolds& holds, TimestampTz now, TransactionId horizon, Look* look) {
  TupleDesc desc = RelationGetDescr(table);
  OffsetNumber last = PageIsNew(page) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);
  for (OffsetNumber n = last; n >= FirstOffsetNumber; n--) {
    ItemId item = PageGetItemId(page, n);
    if (!ItemIdIsNormal(item)) continue;
    HeapTupleData row;
    row.t_tableOid = RelationGetRelid(table);
    row.t_data = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item));
    row.t_len = ItemIdGetLength(item);
    ItemPointerSet(&row.t_self, BufferGetBlockNumber(buf), n);
    HTSV_Result state = HeapTupleSatisfiesVacuum(&row, horizon, buf);
    if (state == HEAPTUPLE_DEAD) continue;
    bool isnull;
    look->queue_id = DatumGetInt32(heap_getattr(&row, kRetQueueId + 1, desc, &isnull));
    look->settled_at = DatumGetTimestampTz(heap_getattr(&row, kRetSettledAt + 1, desc, &isnull));
    look->drop_at = DatumGetTimestampTz(heap_getattr(&row, kRetDropAt + 1, desc, &isnull));
    if (state == HEAPTUPLE_INSERT_IN_PROGRESS)
      look->keep = Keep::kOpenTransaction;
    else if (look->drop_at > now)
      look->keep = Keep::kRetention;
    else if (is_held(holds, look->queue_id))
      look->keep = Keep::kHold;
    if (look->keep != Keep::kNothing) return true;
    look->newest_drop = Max(look->newest_drop, look->drop_at);
  }
  return false;
}

bool look_at_block(Relation table, BlockNumber block, BufferAccessStrategy strategy, const QueueHolds& holds, TimestampTz now, TransactionId horizon,
                   Look* look) {
  Buffer buf = ReadBufferExtended(table, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  bool kept = look_at_page(table, BufferGetPage(buf), buf, holds, now, horizon, look);
  UnlockReleaseBuffer(buf);
  if (kept) look->at = block;
  return kept;
}

constexpr Look kNoLook{Keep::kNothing, false, 0, 0, 0, 0, InvalidBlockNumber};

// From the end, where what was put in last is. look_first: a block to begin with. lock: broken off when somebody waits for
// it.
Look look_at_rows(int n, Relation table, const QueueHolds& holds, TimestampTz now, BlockNumber look_first, LOCKMODE lock) {
  Look look = kNoLook;
  TransactionId horizon = GetOldestNonRemovableTransactionId(table);
  BlockNumber blocks = RelationGetNumberOfBlocks(table);
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  bool kept = BlockNumberIsValid(look_first) && look_first < blocks && look_at_block(table, look_first, nullptr, holds, now, horizon, &look);
  for (BlockNumber b = blocks; b > 0 && !kept; b--) {
    CHECK_FOR_INTERRUPTS();
    look.broken_off = lock != NoLock && b % kBlocksPerBreath == 0 && LockHasWaitersRelation(table, lock);
    if (look.broken_off) break;
    kept = look_at_block(table, b - 1, strategy, holds, now, horizon, &look);
  }
  FreeAccessStrategy(strategy);
  // Once in a window, not whenever nothing is in it for a moment.
  int level = retained_level(n);
  if (look.keep == Keep::kNothing && retained_window(level, look.newest_drop) == retained_window(level, now)) look.keep = Keep::kNewest;
  return look;
}

// ---- what this process remembers of the tables; nothing depends on it

struct Memory {
  RelNumber rel;         // the life of the table that this is about
  BlockNumber kept_at;   // where a row that may not go was met last
  BlockNumber summed_up; // pages that the index knows of
};
Memory memory[kRetainedTables];

Memory* memory_of(int n, Relation table) {
  Memory* m = &memory[n];
  if (m->rel != rel_number(table)) *m = Memory{rel_number(table), InvalidBlockNumber, 0};
  return m;
}

// ---- the decision

// A note that is older than the time of a row says nothing about that row.
bool note_holds(const RetainedNote& note, const Look& look) { return note.passed_at != 0 && note.passed_at >= look.newest_drop; }

RetainedFacts facts_of(Relation table, const Look& look, const QueueHolds& holds, const RetainedNote& note, TimestampTz last, TimestampTz now) {
  RetainedFacts f;
  memset(&f, 0, sizeof(f));
  f.empty = RelationGetNumberOfBlocks(table) == 0;
  f.row = look.keep;
  f.rotation_held = holds.rotation_until > now;
  f.too_soon = last != 0 && now - last < static_cast<int64>(rotate_min_interval_ms) * 1000;
  if (note_holds(note, look)) {
    f.passed_xid = note.passed_xid;
    f.passed_us = now - note.passed_at;
  }
  f.horizon = full_xid_of(GetOldestNonRemovableTransactionId(table));
  f.grace_us = static_cast<int64>(rotate_grace_ms) * 1000;
  return f;
}

TimestampTz last_truncation() {
  TimestampTz last = 0;
  for (int n = 0; n < kRetainedTables; n++) last = Max(last, read_retained_note(n).truncated_at);
  return last;
}

void truncate_retained(int n, Relation table, const RetainedFacts& f, TimestampTz now) {
  uint64 guard = horizon_passed(f) ? f.passed_xid : U64FromFullTransactionId(GetTopFullTransactionId());
  ereport(DEBUG1, (errmsg_internal("truncating \"%s\": all of it is past its time and on no hold, %s", RelationGetRelationName(table),
                                   horizon_passed(f) ? "and every snapshot is newer than that" : "and the grace for older snapshots is over")));
  truncate_as_owner(table);
  write_retained_note(n, RetainedNote{0, 0, guard, now});
}

// Steps 3 and 4, with the table locked against putting in.
bool reclaim_locked(int n, Relation table, const RetainedNote& note, TimestampTz last, TimestampTz now) {
  QueueHolds holds = read_queue_holds();
  Look look = look_at_rows(n, table, holds, now, InvalidBlockNumber, ShareLock);
  if (look.broken_off) return false;
  if (look.keep != Keep::kNothing || !note_holds(note, look)) {
    // Something was put in since it was noted.
    write_retained_note(n, RetainedNote{0, 0, note.guard_xid, note.truncated_at});
    return false;
  }
  RetainedFacts f = facts_of(table, look, holds, note, last, now);
  Oid queues = get_relname_relid("queue", baton_internal_namespace());
  if (keep_retained(f) != Keep::kNothing || !ConditionalLockRelationOid(queues, ShareLock)) return false;
  QueueHolds holds_now = read_queue_holds();
  Locks locks;
  locks.count = 0;
  if (same_holds(holds, holds_now) && holds_now.rotation_until <= now && try_lock_table(&locks, table)) {
    CheckTableNotInUse(table, "TRUNCATE");
    debug_here("retained_locked");
    truncate_retained(n, table, f, now);
    debug_here("retained_truncated");
    return true;
  }
  unlock_all(&locks);
  UnlockRelationOid(queues, ShareLock);
  return false;
}

bool reclaim_table(int n, TimestampTz last, TimestampTz now) {
  Oid oid = retained_table_oid(n);
  if (!OidIsValid(oid) || !ConditionalLockRelationOid(oid, AccessShareLock)) return false;
  Relation table = try_relation_open(oid, NoLock);
  bool truncated = false;
  if (table && RelationGetNumberOfBlocks(table) > 0) {
    RetainedNote note = read_retained_note(n);
    QueueHolds holds = read_queue_holds();
    if (note.passed_at == 0) {
      Memory* m = memory_of(n, table);
      Look look = look_at_rows(n, table, holds, now, m->kept_at, NoLock);
      m->kept_at = look.at;
      if (look.keep == Keep::kNothing)
        write_retained_note(n, RetainedNote{now, U64FromFullTransactionId(GetTopFullTransactionId()), note.guard_xid, note.truncated_at});
    } else if (keep_retained(facts_of(table, kNoLook, holds, note, last, now)) == Keep::kNothing && ConditionalLockRelationOid(oid, ShareLock)) {
      truncated = reclaim_locked(n, table, note, last, now);
      if (!truncated) UnlockRelationOid(oid, ShareLock);
    }
  }
  if (table) relation_close(table, NoLock);
  if (!truncated) UnlockRelationOid(oid, AccessShareLock);
  return truncated;
}

// Ends with the locks held to the end of the transaction.
bool sum_up_table(int n) {
  Oid oid = retained_table_oid(n);
  Relation table = OidIsValid(oid) ? try_relation_open(oid, AccessShareLock) : nullptr;
  if (!table) return false;
  Memory* m = memory_of(n, table);
  BlockNumber blocks = RelationGetNumberOfBlocks(table);
  bool done = false;
  if (blocks - m->summed_up >= kWorthSummingUp && ConditionalLockRelationOid(oid, ShareUpdateExclusiveLock)) {
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) {
      if (!ConditionalLockRelationOid(lfirst_oid(cell), ShareUpdateExclusiveLock)) continue;
      DirectFunctionCall1(brin_summarize_new_values, ObjectIdGetDatum(lfirst_oid(cell)));
      done = true;
    }
    list_free(indexes);
    if (done) m->summed_up = blocks;
  }
  relation_close(table, AccessShareLock);
  return done;
}

}  // namespace

int reclaim_retained() {
  Oid notes = get_relname_relid("retained_note", baton_internal_namespace());
  // One reclaimer at a time: the lock conflicts with itself and with no reader.
  if (!OidIsValid(notes) || !ConditionalLockRelationOid(notes, ShareUpdateExclusiveLock)) return 0;
  TimestampTz now = clock_now();
  TimestampTz last = last_truncation();
  for (int n = 0; n < kRetainedTables; n++)
    if (reclaim_table(n, last, now)) return 1;
  return 0;
}

RetainedKeep retained_kept_by(int n) {
  RetainedKeep k{Keep::kEmpty, 0, 0};
  Relation table = try_relation_open(retained_table_oid(n), AccessShareLock);
  if (!table) return k;
  TimestampTz now = clock_now();
  QueueHolds holds = read_queue_holds();
  Look look = look_at_rows(n, table, holds, now, memory_of(n, table)->kept_at, NoLock);
  RetainedFacts f = facts_of(table, look, holds, read_retained_note(n), last_truncation(), now);
  relation_close(table, AccessShareLock);
  k.keep = keep_retained(f);
  if (k.keep == Keep::kRetention || k.keep == Keep::kHold) {
    k.queue_id = look.queue_id;
    k.until = look.drop_at;
    const Queue* queue = k.keep == Keep::kRetention ? find_queue_by_id(look.queue_id) : nullptr;
    if (queue && look.settled_at + queue->replay_window > now) k.keep = Keep::kReplayWindow;
  } else if (k.keep == Keep::kRotationHeld) {
    k.until = holds.rotation_until;
  }
  return k;
}

bool sum_up_retained() {
  for (int n = 0; n < kRetainedTables; n++)
    if (sum_up_table(n)) return true;
  return false;
}

}  // namespace baton

// One attempt by hand: for tests and for who runs without workers.
BATON_SQL_FUNCTION(baton_reclaim_retained) {
  using namespace baton;
  require_writable("reclaim_retained()");
  PG_RETURN_INT32(reclaim_retained());
}
