// Looking without changing: maps, hints, counters, tokens; and why a claim comes back empty.
#include "../core/outcome.hpp"
#include "../core/token.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/sweep.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "../leasemap/row.hpp"
#include "arguments.hpp"
#include "claim_messages.hpp"

namespace baton {
namespace {

const char* state_word(const Slot& s) {
  switch (slot_state(s)) {
    case SlotState::kInserted:
      return "inserted";
    case SlotState::kReady:
      return "ready";
    case SlotState::kClaimed:
      return "claimed";
    case SlotState::kSettling:
      return "settling";
    case SlotState::kGone:
      return "gone";
    default:
      return "empty";
  }
}

const char* kind_word(const Slot& s) {
  static const char* const words[] = {nullptr,   "acked",   "released", "returned",    "quarantined", "moved",
                                      "purged",  "expired", "aborted",  "handed_back", "void",        "fenced",
                                      "deferred", "revoked", "disconnected"};
  int k = static_cast<int>(slot_kind(s));
  return k < static_cast<int>(sizeof(words) / sizeof(words[0])) ? words[k] : nullptr;
}

// The state after outcomes of transactions are taken into account.
const char* resolved_word(Relation heap, const Slot& s, XidStatus status, TimestampTz now) {
  TimestampTz expires_at;
  switch (slot_phase(s, status, now)) {
    case SlotPhase::kPending:
      return "uncommitted";
    case SlotPhase::kForeign:
      return "foreign";
    case SlotPhase::kDue:
    case SlotPhase::kLapsed:
      if (slot_expires(s) && row_expires_at(heap, s, &expires_at) && expires_at <= now) return "expired";
      return slot_phase(s, status, now) == SlotPhase::kDue ? "ready" : "lapsed";
    case SlotPhase::kLater:
      return "scheduled";
    case SlotPhase::kHeld:
      return "claimed";
    case SlotPhase::kSettling:
    case SlotPhase::kAskRow:
      return "settling";
    default:
      return "gone";
  }
}

// The segment's map, opened for reading, if the caller may look at its queue.
Segment open_for_look(FunctionCallInfo fcinfo) {
  Oid heap = PG_GETARG_OID(0);
  Segment s = open_segment(heap, AccessShareLock);
  Queue* q = find_queue_by_id(queue_id_of_segment(s.heap));
  if (!q ? !superuser() : !can_look(q))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for segment \"%s\"", RelationGetRelationName(s.heap)),
                    errhint("It takes SELECT on the queue's view, or membership in pg_monitor.")));
  return s;
}

struct Row {
  Datum values[20];
  bool nulls[20];
  int n;
};

void add(Row* r, Datum d) {
  r->values[r->n] = d;
  r->nulls[r->n++] = false;
}
void add_null(Row* r) { r->nulls[r->n++] = true; }
void add_text(Row* r, const char* s) {
  if (s && s[0])
    add(r, CStringGetTextDatum(s));
  else
    add_null(r);
}
void add_time(Row* r, bool given, TimestampTz t) {
  if (given)
    add(r, TimestampTzGetDatum(t));
  else
    add_null(r);
}

void slot_row(Row* r, Relation heap, const PageCopy& copy, int i, BlockNumber block, TimestampTz now) {
  const Slot& raw = copy.slots[i];
  const Slot& s = copy.resolved[i];
  bool held = slot_state(s) == SlotState::kClaimed || slot_state(s) == SlotState::kSettling;
  r->n = 0;
  auto* tid = static_cast<ItemPointerData*>(palloc(sizeof(ItemPointerData)));
  *tid = slot_tid(raw);
  add(r, PointerGetDatum(tid));
  add(r, Int64GetDatum(block));
  add(r, Int32GetDatum(i));
  add(r, Int32GetDatum(static_cast<int32>(copy.lane)));
  add(r, Int64GetDatum(raw.id));
  add_text(r, state_word(raw));
  add_text(r, kind_word(raw));
  add(r, UInt64GetDatum(slot_xid(raw)));
  add(r, Int64GetDatum(s.generation));
  add(r, Int32GetDatum(s.failures));
  add(r, Int32GetDatum(static_cast<int32>(raw.key_hash)));
  add_time(r, held, s.deadline);
  add_time(r, !held && s.deadline != 0 && slot_state(s) != SlotState::kGone, s.deadline);
  add_time(r, held, slot_claimed_at(s));
  add_time(r, held && s.started_ms != 0, slot_claimed_at(s) + (static_cast<int64>(s.started_ms) - 1) * 1000);
  char worker[64];
  worker_name(raw.worker, worker, sizeof(worker));
  add_text(r, worker);
  add(r, BoolGetDatum(slot_is_foreign(raw)));
  add_text(r, resolved_word(heap, s, copy.status[i], now));
  int pid = 0;
  if (slot_has_open_xid(raw) && copy.status[i] == XidStatus::kInProgress) pid = BackendXidGetPid(static_cast<TransactionId>(slot_xid(raw)));
  if (pid != 0)
    add(r, Int32GetDatum(pid));
  else
    add_null(r);
}

// Feeds the queues' own views, and checks no privilege: whoever may read such a view, or a view of the application over
// it, may see this; nobody else can name it, since schema baton_internal is closed.
Datum map_slots_fn(FunctionCallInfo fcinfo) {
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  Segment segment = open_segment(PG_GETARG_OID(0), AccessShareLock);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
  MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "baton map_slots", ALLOCSET_DEFAULT_SIZES);
  TimestampTz now = clock_now();
  for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
    CHECK_FOR_INTERRUPTS();
    if (!copy_slots(segment.map, b, 0, kSlotsPerPage, nullptr, copy)) continue;
    MemoryContext old = MemoryContextSwitchTo(scratch);
    resolve_copy(segment.heap, copy);
    for (int i = 0; i < copy->count; i++) {
      Row r;
      slot_row(&r, segment.heap, *copy, i, b, now);
      tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, r.values, r.nulls);
    }
    MemoryContextSwitchTo(old);
    MemoryContextReset(scratch);
  }
  MemoryContextDelete(scratch);
  pfree(copy);
  close_segment(segment, AccessShareLock);
  return (Datum)0;
}

Datum map_meta_fn(FunctionCallInfo fcinfo) {
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  Segment segment = open_for_look(fcinfo);
  if (RelationGetNumberOfBlocks(segment.map) > 0) {
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(segment.map, &meta, &entry, kDefaultLane);
    Row r;
    r.n = 0;
    add(&r, Int32GetDatum(meta.version));
    add(&r, Int64GetDatum(static_cast<int64>(meta.epoch)));
    add(&r, Int64GetDatum(static_cast<int64>(meta.open_seq)));
    if (meta.guard_xid)
      add(&r, UInt64GetDatum(meta.guard_xid));
    else
      add_null(&r);
    add(&r, Int64GetDatum(RelationGetNumberOfBlocks(segment.map)));
    add(&r, Int32GetDatum(static_cast<int32>(meta.lane_count)));
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, r.values, r.nulls);
  }
  close_segment(segment, AccessShareLock);
  return (Datum)0;
}

Datum lane_hints_fn(FunctionCallInfo fcinfo) {
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  require_preload();
  Segment segment = open_for_look(fcinfo);
  auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
  int n = RelationGetNumberOfBlocks(segment.map) > 0 ? list_lanes(segment.map, lanes, kMaxLanes) : 0;
  for (int i = 0; i < n; i++) {
    LaneHint* h = lane_hint(segment.map, lanes[i].lane);
    Row r;
    r.n = 0;
    add(&r, Int32GetDatum(static_cast<int32>(lanes[i].lane)));
    add(&r, Int64GetDatum(static_cast<int64>(h->frontier_ordinal) * kSlotsPerPage + h->frontier_index));
    add(&r, Int64GetDatum(static_cast<int64>(h->appended)));
    add(&r, Int32GetDatum(h->revisit_count));
    add(&r, Int32GetDatum(h->timed_count));
    add_time(&r, h->sweep_at != kNever, h->sweep_at);
    add(&r, Int64GetDatum(static_cast<int64>(h->low_ordinal) * kSlotsPerPage));
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, r.values, r.nulls);
  }
  close_segment(segment, AccessShareLock);
  return (Datum)0;
}

Datum queue_counters_fn(FunctionCallInfo fcinfo) {
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  require_preload();
  Queue* q = find_queue_by_id(PG_GETARG_INT32(0));
  if (!q || !can_look(q)) return (Datum)0;
  QueueHint* h = queue_hint(MyDatabaseId, q->id);
  Row r;
  r.n = 0;
  auto add_counter = [&](int i) { add(&r, Int64GetDatum(static_cast<int64>(pg_atomic_read_u64(&h->counters[i])))); };
  constexpr int kFirstLater = static_cast<int>(Counter::kExpired);
  for (int i = 0; i < kFirstLater; i++) add_counter(i);
  add(&r, Int32GetDatum(static_cast<int32>(pg_atomic_read_u32(&h->waiting))));
  // SQL of before 0.2.0 has no columns for the others.
  for (int i = kFirstLater; i < static_cast<int>(Counter::kCount); i++) add_counter(i);
  tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, r.values, r.nulls);
  return (Datum)0;
}

Datum outcomes_fn(FunctionCallInfo fcinfo) {
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  for (const OutcomeEntry& e : kOutcomes) {
    Row r;
    r.n = 0;
    add_text(&r, e.word);
    add_text(&r, e.sqlstate);
    add_text(&r, e.meaning);
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, r.values, r.nulls);
  }
  return (Datum)0;
}

Datum why_empty(FunctionCallInfo fcinfo) {
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  check_privilege(q, ACL_UPDATE);
  const char* why = nullptr;
  if (!enabled || !claims_enabled)
    why = "disabled";
  else if (!q->at_home)
    why = "restored";
  else if (q->paused)
    why = "paused";
  if (!why) {
    require_writable("why_empty");
    if (!something_to_claim(q)) why = "empty";
  }
  if (!why) {
    fcinfo->isnull = true;
    return (Datum)0;
  }
  return CStringGetTextDatum(why);
}

}  // namespace
}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_map_slots) { return map_slots_fn(fcinfo); }
BATON_SQL_FUNCTION(baton_map_meta) { return map_meta_fn(fcinfo); }
BATON_SQL_FUNCTION(baton_lane_hints) { return lane_hints_fn(fcinfo); }
BATON_SQL_FUNCTION(baton_queue_counters) { return queue_counters_fn(fcinfo); }
BATON_SQL_FUNCTION(baton_outcomes) { return outcomes_fn(fcinfo); }
BATON_SQL_FUNCTION(baton_why_empty) { return why_empty(fcinfo); }

BATON_SQL_FUNCTION(baton_channel) {
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  if (!can_look(q)) check_privilege(q, ACL_UPDATE);
  char channel[NAMEDATALEN];
  notify_channel(q->id, channel);
  PG_RETURN_TEXT_P(cstring_to_text(channel));
}

BATON_SQL_FUNCTION(baton_can_look) { PG_RETURN_BOOL(can_look(find_queue(PG_GETARG_TEXT_PP(0)))); }

BATON_SQL_FUNCTION(baton_sweep) {
  require_writable("sweep");
  Queue* q = find_queue(PG_GETARG_TEXT_PP(0));
  check_privilege(q, ACL_UPDATE);
  PG_RETURN_INT64(sweep_queue(q, true));
}

BATON_SQL_FUNCTION(baton_token_is_well_formed) {
  text* t = PG_GETARG_TEXT_PP(0);
  PG_RETURN_BOOL(token_is_well_formed(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t)));
}

BATON_SQL_FUNCTION(baton_random_bytes) {
  int n = PG_GETARG_INT32(0);
  if (n < 1 || n > 1024) raise_bad_argument("n", "must be 1 to 1024");
  auto* out = static_cast<bytea*>(palloc(VARHDRSZ + static_cast<Size>(n)));
  SET_VARSIZE(out, VARHDRSZ + n);
  if (!pg_strong_random(VARDATA(out), static_cast<Size>(n)))
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not obtain random numbers")));
  PG_RETURN_BYTEA_P(out);
}
