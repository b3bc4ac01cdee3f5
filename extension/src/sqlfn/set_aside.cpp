// See set_aside.hpp and settle.hpp.
#include "set_aside.hpp"

#include "../leasemap/resolve.hpp"
#include "../leasemap/row.hpp"
#include "../leasemap/sweep.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/shmem.hpp"
#include "../pg/subtransaction.hpp"
#include "../pg/xid_status.hpp"
#include "data_row.hpp"
#include "settle.hpp"

namespace baton {
namespace {


Datum worker_datum(const Slot& slot) {
  char name[64];
  worker_name(slot.worker, name, sizeof(name));
  return CStringGetTextDatum(name);
}

// The message as a value of type baton.message, with what the slot knows better than the row.
bool message_datum(const Queue* queue, Relation heap, const Slot& slot, int failures, Datum* out) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  if (!ItemPointerIsValid(&tuple.t_self)) return false;
  Buffer buf;
  if (!fetch_heap_tuple(heap, SnapshotSelf, &tuple, &buf)) return false;
  TupleDesc desc = lookup_rowtype_tupdesc(heap->rd_rel->reloftype, -1);
  auto* values = static_cast<Datum*>(palloc0(sizeof(Datum) * static_cast<Size>(desc->natts)));
  auto* nulls = static_cast<bool*>(palloc(static_cast<Size>(desc->natts)));
  memset(nulls, true, static_cast<Size>(desc->natts));
  for (int i = 0; i < desc->natts && i < RelationGetDescr(heap)->natts; i++)
    values[i] = heap_getattr(&tuple, i + 1, RelationGetDescr(heap), &nulls[i]);
  values[kRowQueueId] = Int32GetDatum(queue->id);
  values[kRowGeneration] = Int32GetDatum(static_cast<int32>(slot.generation));
  values[kRowFailures] = Int32GetDatum(failures);
  nulls[kRowQueueId] = nulls[kRowGeneration] = nulls[kRowFailures] = false;
  HeapTuple formed = heap_form_tuple(desc, values, nulls);
  *out = heap_copy_tuple_as_datum(formed, desc);  // takes toasted values in
  ReleaseTupleDesc(desc);
  ReleaseBuffer(buf);
  return true;
}

// Marks the slot as settling, if it is still what the caller looked at.
bool mark_slot(const Segment& segment, const Slot& looked, const Place& place, SettleKind kind, int32 queue_id) {
  uint64 xid = current_full_xid();
  reserve_settle_notes(1);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  bool done = false;
  if (copy_slots(segment.map, place.block, place.index, 1, nullptr, copy) && copy->count == 1) {
    resolve_copy(segment.heap, copy);
    // looked is a resolved copy: what has happened since shows in any of its fields.
    if (memcmp(&copy->resolved[0], &looked, sizeof(Slot)) == 0) {
      Buffer buf = ReadBuffer(segment.map, place.block);
      LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
      Page page = BufferGetPage(buf);
      Slot* on_page = &map_slots(page)[place.index];
      done = memcmp(on_page, &copy->slots[0], sizeof(Slot)) == 0;
      if (done) {
        uint16 at = slot_offset(place.index);
        Fragment f{static_cast<uint16>(at), sizeof(Slot)};
        map_log_begin(segment.map);
        START_CRIT_SECTION();
        *on_page = copy->resolved[0];
        on_page->state = static_cast<uint8>(SlotState::kSettling);
        set_slot_kind(*on_page, kind);
        set_slot_xid(*on_page, xid);
        map_log(segment.map, buf, &f, 1);
        END_CRIT_SECTION();
        note_settled(lane_key(segment.map, map_tail(page)->lane), place.block, place.index, 0, 0, false, queue_id);
      }
      UnlockReleaseBuffer(buf);
    }
  }
  pfree(copy);
  return done;
}

}  // namespace

void delete_row(Relation heap, const Slot& slot) {
  ItemPointerData tid = slot_tid(slot);
  if (!ItemPointerIsValid(&tid)) return;
  TM_FailureData failure;
  TM_Result result = delete_heap_tuple(heap, &tid, GetCurrentCommandId(true), &failure, true);
  switch (result) {
    case TM_Ok:
    case TM_SelfModified:
    case TM_Deleted:
    case TM_Updated:
      return;
    default:
      elog(ERROR, "unexpected result %d of deleting a message row", result);
  }
}

void quarantine_row(const Queue* queue, Relation heap, const Slot& slot, const QuarantineEvidence& evidence) {
  int failures = slot.failures + (evidence.count_failure ? 1 : 0);
  Datum message;
  if (!message_datum(queue, heap, slot, failures, &message)) return;
  DataRow r = new_data_row("quarantined");
  set_column(&r, "queue_id", Int32GetDatum(queue->id));
  set_column(&r, "id", Int64GetDatum(slot.id));
  set_column(&r, "generation", Int64GetDatum(slot.generation));
  set_column(&r, "failures", Int32GetDatum(failures));
  set_column(&r, "quarantined_at", TimestampTzGetDatum(clock_now()));
  set_column(&r, "cause", CStringGetTextDatum(evidence.cause));
  set_column(&r, "worker", worker_datum(slot), slot.worker == 0);
  set_column(&r, "reason", PointerGetDatum(evidence.reason), evidence.reason == nullptr);
  set_column(&r, "error", evidence.error, !evidence.has_error);
  set_column(&r, "message", message);
  TimestampTz expires_at;
  // What is here because it has expired is meant to be kept. (SQL of before 0.2.0 has no such column.)
  if (slot_expires(slot) && strcmp(evidence.cause, "expired") != 0 && row_expires_at(heap, slot, &expires_at) &&
      get_attnum(RelationGetRelid(r.table), "expires_at") != InvalidAttrNumber)
    set_column(&r, "expires_at", TimestampTzGetDatum(expires_at));
  insert_data_row(&r);
  delete_row(heap, slot);
}

void add_evidence(int32 queue_id, const Slot& slot, bool count_failure, const char* verdict, text* reason, bool has_error, Datum error) {
  DataRow r = new_data_row("evidence");
  set_column(&r, "queue_id", Int32GetDatum(queue_id));
  set_column(&r, "id", Int64GetDatum(slot.id));
  set_column(&r, "generation", Int64GetDatum(slot.generation));
  set_column(&r, "failures", Int32GetDatum(slot.failures + (count_failure ? 1 : 0)));
  set_column(&r, "worker", worker_datum(slot), slot.worker == 0);
  set_column(&r, "at", TimestampTzGetDatum(clock_now()));
  set_column(&r, "verdict", CStringGetTextDatum(verdict));
  set_column(&r, "reason", PointerGetDatum(reason), reason == nullptr);
  set_column(&r, "error", error, !has_error);
  insert_data_row(&r);
}

bool set_aside(const Queue* queue, const Segment& segment, int, const Slot& slot, const Place& place, SettleKind kind, const char* cause) {
  CheckCmdReplicaIdentity(segment.heap, CMD_DELETE);
  bool expired = kind == SettleKind::kExpired;
  // What has expired stays so: should a crash or a failover forget this, it is done again. No replica is waited for.
  if (!expired) require_durability(queue->durability);
  if (expired && keeps_expired(queue)) kind = SettleKind::kQuarantined;
  if (!mark_slot(segment, slot, place, kind, queue->id)) return false;
  if (expired) baton::count(queue->id, Counter::kExpired, 1);
  if (kind == SettleKind::kQuarantined) {
    // A lease that ended, or a claim that was rolled back, is a failure that the slot does not show yet.
    bool count_failure = slot_state(slot) == SlotState::kClaimed && (expired || strcmp(cause, "max_attempts") == 0);
    QuarantineEvidence e{cause, nullptr, false, 0, count_failure};
    quarantine_row(queue, segment.heap, slot, e);
    baton::count(queue->id, Counter::kQuarantined, 1);
  } else if (kind != SettleKind::kPurged) {
    delete_row(segment.heap, slot);
  }
  return true;
}

struct AsideWork {
  const Queue* queue;
  const Segment* segment;
  int segment_no;
  const Slot* slot;
  Place place;
  bool done;
};

static void aside_body(void* argument) {
  auto* w = static_cast<AsideWork*>(argument);
  w->done = set_aside(w->queue, *w->segment, w->segment_no, *w->slot, w->place, SettleKind::kQuarantined, "max_attempts");
}

// A message that cannot be set aside must not keep others from it.
static bool set_aside_used_up(AsideWork w, bool alone) {
  if (!alone)
    aside_body(&w);
  else if (!in_subtransaction(aside_body, &w))
    return false;
  return w.done;
}

int64 settle_exhausted(Queue* queue, bool one_by_one) {
  int64 n = 0;
  bool pushed = push_snapshot_if_none();
  offer_undone_after(clock_now() + kAsideAgain);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  for (int i = 0; i < queue->segment_count; i++) {
    Segment segment = open_segment(queue->heap[i], RowExclusiveLock);
    LaneDirectoryEntry lanes[kMaxLanes];
    int lane_count = list_lanes(segment.map, lanes, kMaxLanes);
    for (int l = 0; l < lane_count; l++) {
      LaneView view = view_lane(segment.map, lanes[l].lane);
      BlockNumber block = BlockNumberIsValid(view.low_block) ? view.low_block : lanes[l].first;
      while (BlockNumberIsValid(block)) {
        CHECK_FOR_INTERRUPTS();
        if (!copy_slots(segment.map, block, 0, kSlotsPerPage, nullptr, copy)) raise_damaged_map(segment.map, block);
        resolve_copy(segment.heap, copy);
        TimestampTz now = clock_now();
        for (int k = 0; k < copy->count; k++) {
          const Slot& s = copy->resolved[k];
          bool lapsed = slot_phase(s, copy->status[k], now) == SlotPhase::kLapsed;
          bool due = slot_phase(s, copy->status[k], now) == SlotPhase::kDue;
          if ((lapsed && s.failures + 1 >= queue->max_attempts) || (due && s.failures >= queue->max_attempts))
            n += set_aside_used_up(AsideWork{queue, &segment, i, &s, Place{block, static_cast<uint8>(k)}, false}, one_by_one) ? 1 : 0;
        }
        if (copy->ordinal * static_cast<uint64>(kSlotsPerPage) >= view.frontier) break;
        block = copy->next;
      }
    }
    close_segment(segment, NoLock);
  }
  offer_undone_after(0);
  pfree(copy);
  if (pushed) PopActiveSnapshot();
  return n;
}

}  // namespace baton
