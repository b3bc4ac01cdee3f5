// See row_look.hpp. The row is never waited for: what somebody else has locked is passed over (the rule of SKIP LOCKED).
#include "row_look.hpp"

#include "../pg/xid_status.hpp"

namespace baton {
namespace {

bool is_this_message(Relation heap, HeapTuple tuple, const Slot& slot) {
  bool isnull;
  Datum id = heap_getattr(tuple, kRowId + 1, RelationGetDescr(heap), &isnull);
  return !isnull && DatumGetInt64(id) == slot.id;
}

// What an open or ended transaction has done to the row. A claim of ours does not touch the row, so anything found here
// is plain SQL.
RowLook judge_xmax(HeapTuple tuple) {
  HeapTupleHeader h = tuple->t_data;
  uint16 mask = h->t_infomask;
  if (mask & HEAP_XMAX_INVALID) return RowLook::kFree;
  bool lock_only = HEAP_XMAX_IS_LOCKED_ONLY(mask);
  TransactionId xmax = HeapTupleHeaderGetRawXmax(h);
  if (mask & HEAP_XMAX_IS_MULTI) {
    if (MultiXactIdIsRunning(xmax, lock_only)) return RowLook::kLocked;
    if (lock_only) return RowLook::kFree;
    xmax = HeapTupleGetUpdateXid(h);
  }
  if (!TransactionIdIsNormal(xmax)) return RowLook::kFree;
  if (TransactionIdIsCurrentTransactionId(xmax)) return lock_only ? RowLook::kFree : RowLook::kLocked;
  if (TransactionIdIsInProgress(xmax)) return RowLook::kLocked;
  if (lock_only) return RowLook::kFree;
  return xid_status(full_xid_of(xmax)) == XidStatus::kAborted ? RowLook::kFree : RowLook::kMissing;
}

}  // namespace

bool row_expires_at(Relation heap, const ItemPointerData& tid, int64 id, TimestampTz* at) {
  HeapTupleData tuple;
  tuple.t_self = tid;
  // Its place may lie beyond the end on a standby, where slots are replayed after the rows were truncated.
  if (!ItemPointerIsValid(&tuple.t_self) || ItemPointerGetBlockNumber(&tuple.t_self) >= RelationGetNumberOfBlocks(heap)) return false;
  Buffer buf;
  // The expiry of a message never changes: it does not matter who can see the row.
  if (!fetch_heap_tuple(heap, SnapshotAny, &tuple, &buf)) return false;
  TupleDesc desc = RelationGetDescr(heap);
  bool isnull;
  bool found = DatumGetInt64(heap_getattr(&tuple, kRowId + 1, desc, &isnull)) == id && !isnull;
  Datum d = heap_getattr(&tuple, kRowExpiresAt + 1, desc, &isnull);
  found = found && !isnull;
  if (found) *at = DatumGetTimestampTz(d);
  ReleaseBuffer(buf);
  return found;
}

RowLook look_at_row(Relation heap, const Slot& slot, Snapshot snapshot, HeapTuple* copy) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  if (!ItemPointerIsValid(&tuple.t_self)) return RowLook::kMissing;
  Buffer buf;
  if (!fetch_heap_tuple(heap, snapshot, &tuple, &buf)) {
    if (!fetch_heap_tuple(heap, SnapshotSelf, &tuple, &buf)) return RowLook::kMissing;
    RowLook look = is_this_message(heap, &tuple, slot) ? RowLook::kInvisible : RowLook::kMissing;
    ReleaseBuffer(buf);
    return look;
  }
  RowLook look = is_this_message(heap, &tuple, slot) ? judge_xmax(&tuple) : RowLook::kMissing;
  if (look == RowLook::kFree) *copy = heap_copytuple(&tuple);
  ReleaseBuffer(buf);
  return look;
}

}  // namespace baton
