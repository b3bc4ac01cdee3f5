// See move.hpp. The slot is marked before its row is deleted and written anew, never after: looking first and moving then
// would race with an acknowledgement (protocol rule 29). A settlement in progress is left alone.
#include "move.hpp"

#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/xid_status.hpp"
#include "resolve.hpp"
#include "row_look.hpp"
#include "write_rows.hpp"
#include "xact.hpp"

namespace baton {
namespace {

struct Traveller {
  const MoveItem* item;
  int number;  // in the caller's list
  HeapTuple row;
  bool marked;
};

// A token of the last claim must not hear "already settled" for a settlement that was not its own: only a release by it, or
// handing back, had that token end its claim.
bool ended_by_its_token(const Slot& s) {
  SettleKind k = slot_kind(s);
  return slot_state(s) == SlotState::kReady && (releases(k) || k == SettleKind::kHandedBack);
}

// One critical section for the travellers on one page.
void mark_page(const Segment& from, Traveller* t, int n, uint64 xid, SettleKind kind, PageCopy* copy) {
  BlockNumber block = t[0].item->place.block;
  if (!copy_slots(from.map, block, 0, kSlotsPerPage, nullptr, copy)) return;
  resolve_copy(from.heap, copy);
  Fragment fragments[kSlotsPerPage];
  int changes = 0;
  Buffer buf = ReadBuffer(from.map, block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Page page = BufferGetPage(buf);
  Slot* slots = map_slots(page);
  for (int i = 0; i < n; i++) {
    int at = t[i].item->place.index;
    // Looked at as resolved; what has happened since shows in any of the fields.
    t[i].marked = at < copy->count && memcmp(&copy->resolved[at], &t[i].item->slot, sizeof(Slot)) == 0 &&
                  memcmp(&slots[at], &copy->slots[at], sizeof(Slot)) == 0;
    if (t[i].marked) fragments[changes++] = Fragment{slot_offset(at), sizeof(Slot)};
  }
  if (changes > 0) {
    map_log_begin(from.map);
    START_CRIT_SECTION();
    for (int i = 0; i < n; i++) {
      if (!t[i].marked) continue;
      Slot* s = &slots[t[i].item->place.index];
      *s = copy->resolved[t[i].item->place.index];
      if (slot_state(*s) == SlotState::kReady && !ended_by_its_token(*s)) s->nonce = 0;
      s->state = static_cast<uint8>(SlotState::kSettling);
      set_slot_kind(*s, kind);
      set_slot_xid(*s, xid);
    }
    map_log(from.map, buf, fragments, changes);
    END_CRIT_SECTION();
  }
  LaneKey key = lane_key(from.map, map_tail(page)->lane);
  int32 queue_id = 0;
  for (int i = 0; i < n; i++)
    if (t[i].marked) note_settled(key, block, t[i].item->place.index, 0, 0, false, queue_id);
  UnlockReleaseBuffer(buf);
}

void mark(const Segment& from, Traveller* travellers, int n, SettleKind kind) {
  uint64 xid = current_full_xid();
  reserve_settle_notes(n);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  for (int i = 0; i < n;) {
    int run = 1;
    while (i + run < n && travellers[i + run].item->place.block == travellers[i].item->place.block) run++;
    mark_page(from, travellers + i, run, xid, kind, copy);
    i += run;
  }
  pfree(copy);
}

void set_number(Envelope* e, int column, int64 value, Datum datum) {
  e->nulls[column] = value == 0;
  e->values[column] = datum;
}

// The row as it will be written, with what the slot knows better.
void envelope_from_row(Relation heap, HeapTuple row, const Slot& slot, int failures, TimestampTz due, Envelope* e) {
  TupleDesc desc = RelationGetDescr(heap);
  for (int i = 0; i < kRowColumns; i++) {
    e->values[i] = heap_getattr(row, i + 1, desc, &e->nulls[i]);
    // The old row's toasted values go with it.
    if (!e->nulls[i] && TupleDescAttr(desc, i)->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(e->values[i])))
      e->values[i] = PointerGetDatum(detoast_external_attr(reinterpret_cast<struct varlena*>(DatumGetPointer(e->values[i]))));
  }
  e->lane = e->nulls[kRowLane] ? kDefaultLane : static_cast<uint32>(DatumGetInt32(e->values[kRowLane]));
  e->key_hash = e->nulls[kRowRoutingKey] ? 0 : routing_key_hash(DatumGetTextPP(e->values[kRowRoutingKey]));
  e->generation = slot.generation;
  e->failures = static_cast<uint16>(failures);
  e->due = due;
  e->first = due == 0;  // it has had its turn
  e->claim = nullptr;
  set_number(e, kRowGeneration, slot.generation, Int32GetDatum(static_cast<int32>(slot.generation)));
  set_number(e, kRowFailures, failures, Int32GetDatum(failures));
  e->nulls[kRowQueueId] = true;
  if (due != 0) {
    e->values[kRowNotBefore] = TimestampTzGetDatum(due);
    e->nulls[kRowNotBefore] = false;
  } else if (!e->nulls[kRowNotBefore] && DatumGetTimestampTz(e->values[kRowNotBefore]) > clock_now()) {
    // Due earlier than it was: a map that is rebuilt from the rows must not wait for the old time.
    e->nulls[kRowNotBefore] = true;
  }
}

void delete_moved_row(Relation heap, const Slot& slot) {
  ItemPointerData tid = slot_tid(slot);
  TM_FailureData failure;
  // Never waits: whoever has locked the row since it was looked at keeps it, and the whole batch is tried again later.
  TM_Result result = delete_heap_tuple(heap, &tid, GetCurrentCommandId(true), &failure, false);
  if (result == TM_Ok) return;
  ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("could not move a message: its row is locked or was deleted"),
                  errdetail("Message " INT64_FORMAT " in \"%s\".", slot.id, RelationGetRelationName(heap))));
}

void write_long(Queue* queue, Envelope* rows, int count) {
  auto** pointers = static_cast<Envelope**>(palloc(sizeof(Envelope*) * static_cast<Size>(count)));
  for (int i = 0; i < count; i++) pointers[i] = &rows[i];
  write_shared_rows(queue, SharedTable{SharedKind::kLong, long_table_to_write()}, pointers, count);
  pfree(pointers);
}

}  // namespace

int long_table_to_write() {
  // The one that was opened last, as in a queue's ring; ties go to the first.
  uint64 best_seq = 0;
  int best = 0;
  for (int i = 0; i < kLongTables; i++) {
    Segment s = open_segment(shared_table_oid(SharedKind::kLong, i), RowExclusiveLock);
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(s.map, &meta, &entry, 1);
    if (meta.open_seq > best_seq) {
      best_seq = meta.open_seq;
      best = i;
    }
    close_segment(s, RowExclusiveLock);
  }
  return best;
}

int move_messages(Queue* queue, const Segment& from, MoveItem* items, int count, MoveTarget target, bool* moved) {
  if (moved) memset(moved, 0, sizeof(bool) * static_cast<Size>(count));
  if (count == 0) return 0;
  // The definition can be loaded anew whenever a lock is taken.
  CheckCmdReplicaIdentity(from.heap, CMD_DELETE);
  require_durability(queue->durability);
  bool pushed = push_snapshot_if_none();
  Snapshot snapshot = GetActiveSnapshot();
  auto* travellers = static_cast<Traveller*>(palloc(sizeof(Traveller) * static_cast<Size>(count)));
  int n = 0;
  for (int i = 0; i < count; i++) {
    HeapTuple row = nullptr;
    if (look_at_row(from.heap, items[i].slot, snapshot, &row) == RowLook::kFree) travellers[n++] = Traveller{&items[i], i, row, false};
  }
  mark(from, travellers, n, SettleKind::kMoved);
  debug_here("move-marked");
  auto* rows = static_cast<Envelope*>(MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Envelope) * static_cast<Size>(Max(n, 1))));
  int kept = 0;
  for (int i = 0; i < n; i++) {
    const Traveller& t = travellers[i];
    if (!t.marked) continue;
    const Slot& s = t.item->slot;
    envelope_from_row(from.heap, t.row, s, s.failures, t.item->due, &rows[kept]);
    if (target == MoveTarget::kLong) rows[kept].claim = &t.item->slot;
    delete_moved_row(from.heap, s);
    if (moved) moved[t.number] = true;
    kept++;
  }
  debug_here("move-deleted");
  if (kept > 0) {
    if (target == MoveTarget::kLong)
      write_long(queue, rows, kept);
    else
      write_rows(queue, rows, kept, nullptr);
  }
  debug_here("move-written");
  pfree(rows);
  pfree(travellers);
  if (pushed) PopActiveSnapshot();
  return kept;
}

void defer_row(Queue* queue, const Segment& from, const Slot& slot, int failures, TimestampTz due) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  Buffer buf;
  // Deleted by plain SQL meanwhile: there is nothing to wait for any more.
  if (!fetch_heap_tuple(from.heap, SnapshotSelf, &tuple, &buf)) return;
  HeapTuple row = heap_copytuple(&tuple);
  ReleaseBuffer(buf);
  Envelope e;
  envelope_from_row(from.heap, row, slot, failures, due, &e);
  ItemPointerData tid = slot_tid(slot);
  TM_FailureData failure;
  if (delete_heap_tuple(from.heap, &tid, GetCurrentCommandId(true), &failure, true) == TM_Ok) write_rows(queue, &e, 1, nullptr);
  heap_freetuple(row);
}

void purge_slots(const Segment& from, const MoveItem* items, int count) {
  auto* travellers = static_cast<Traveller*>(palloc(sizeof(Traveller) * static_cast<Size>(Max(count, 1))));
  for (int i = 0; i < count; i++) travellers[i] = Traveller{&items[i], i, nullptr, false};
  mark(from, travellers, count, SettleKind::kPurged);
  pfree(travellers);
}

}  // namespace baton
