// See survey.hpp. The SQL functions here feed the views of sql/50_views.sql. They check for themselves that the caller
// may look at the queue: EXECUTE on them is granted to all, since a view's functions run with the rights of its reader.
#include "survey.hpp"

#include "../leasemap/row.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../pg/clock.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"

namespace baton {

namespace {

// The last transaction asked about: neighbours were mostly made by the same one.
struct XidMemo {
  uint64 xid;
  XidStatus status;
};

XidStatus status_of(XidMemo* memo, uint64 xid) {
  if (memo->xid != xid) *memo = XidMemo{xid, xid_status(xid)};
  return memo->status;
}

// The commit log no longer answers: a row that is there was inserted by a committed transaction and its settlement
// rolled back, a row that is not there is settled.
void ask_row(const Segment& segment, SurveySlot* s, TimestampTz now) {
  bool live = fetch_row(segment.heap, s->slot, GetActiveSnapshot(), nullptr, 0, nullptr, nullptr);
  bool inserted = slot_state(s->slot) == SlotState::kInserted;
  s->status = live == inserted ? XidStatus::kCommitted : XidStatus::kAborted;
  // A release leaves its row alone; the verbs take it as done (leasemap/resolve.cpp).
  if (!inserted && releases(slot_kind(s->slot))) s->status = XidStatus::kCommitted;
  resolve_slot(s->slot, s->status);
  end_orphan(s->slot, sessions_began());
  s->phase = slot_phase(s->slot, s->status, now);
}

// Only of slots that are claimable otherwise: what waits is due before it expires, and a live claim is not ended.
bool survey_expired(const SurveySlot& s, const Segment& segment) {
  TimestampTz at;
  if ((s.phase != SlotPhase::kDue && s.phase != SlotPhase::kLapsed) || !slot_expires(s.slot)) return false;
  return row_expires_at(segment.heap, s.slot, &at) && at <= clock_now();
}

struct Counts {
  int64 ready;   // offered to whoever claims next
  int64 lapsed;  // claimed, but the lease has ended: ready too
  int64 scheduled;
  int64 claimed;
  int64 not_started;  // of those
  int64 settling;
  int64 uncommitted;
  int64 foreign;
  int64 expired;  // would be ready, but its expiry has passed
  int64 settled;
  int64 oldest_id;  // of the first unsettled message in line, to find its age
  Slot oldest;
  bool has_oldest;
};

bool count_slot(const SurveySlot& s, const Segment& segment, void* arg) {
  Counts* c = static_cast<Counts*>(arg);
  if (survey_expired(s, segment)) {
    c->expired++;
    return true;
  }
  switch (s.phase) {
    case SlotPhase::kDue:
      c->ready++;
      break;
    case SlotPhase::kLapsed:
      c->lapsed++;
      break;
    case SlotPhase::kLater:
      c->scheduled++;
      break;
    case SlotPhase::kHeld:
      c->claimed++;
      if (s.slot.started_ms == 0) c->not_started++;
      break;
    case SlotPhase::kSettling:
      c->settling++;
      break;
    case SlotPhase::kPending:
      c->uncommitted++;
      break;
    case SlotPhase::kForeign:
      c->foreign++;
      break;
    default:
      c->settled++;
      return true;
  }
  if ((s.phase == SlotPhase::kDue || s.phase == SlotPhase::kLapsed) && (!c->has_oldest || s.slot.id < c->oldest_id)) {
    c->has_oldest = true;
    c->oldest_id = s.slot.id;
    c->oldest = s.slot;
  }
  return true;
}

struct HeldOutput {
  Tuplestorestate* store;
  TupleDesc desc;
};

constexpr int kHeldColumns = 10;

void held_values(const SurveySlot& s, Datum* values, bool* nulls) {
  char worker[64];
  worker_name(s.slot.worker, worker, sizeof(worker));
  memset(nulls, 0, kHeldColumns * sizeof(bool));
  int64 claimed_at = slot_claimed_at(s.slot);
  values[0] = Int64GetDatum(s.slot.id);
  values[1] = CStringGetTextDatum(s.phase == SlotPhase::kHeld ? "claimed" : "settling");
  values[2] = CStringGetTextDatum(worker);
  values[3] = TimestampTzGetDatum(claimed_at);
  nulls[4] = s.slot.started_ms == 0;
  values[4] = TimestampTzGetDatum(claimed_at + (static_cast<int64>(s.slot.started_ms) - 1) * 1000);
  values[5] = TimestampTzGetDatum(s.slot.deadline);
  values[6] = Int64GetDatum(s.slot.generation);
  values[7] = Int32GetDatum(s.slot.failures);
  nulls[8] = s.phase != SlotPhase::kSettling;
  values[8] = TransactionIdGetDatum(static_cast<TransactionId>(slot_xid(s.slot)));
  values[9] = BoolGetDatum(slot_is_session_bound(s.slot));  // SQL of 0.1.0 has no such column
}

bool is_held(const SurveySlot& s) { return s.phase == SlotPhase::kHeld || s.phase == SlotPhase::kSettling; }

bool put_held(const SurveySlot& s, const Segment&, void* arg) {
  if (!is_held(s)) return true;
  HeldOutput* out = static_cast<HeldOutput*>(arg);
  Datum values[kHeldColumns];
  bool nulls[kHeldColumns];
  held_values(s, values, nulls);
  tuplestore_putvalues(out->store, out->desc, values, nulls);
  return true;
}

bool put_long_held(const SurveySlot& s, const Segment&, void* arg) {
  if (!is_held(s)) return true;
  HeldOutput* out = static_cast<HeldOutput*>(arg);
  Datum values[1 + kHeldColumns] = {Int32GetDatum(static_cast<int32>(s.slot.key_hash))};
  bool nulls[1 + kHeldColumns] = {false};
  held_values(s, values + 1, nulls + 1);
  tuplestore_putvalues(out->store, out->desc, values, nulls);
  return true;
}

struct QueueCounts {
  Counts counts;
  int32 queue_id;
};

bool count_slot_of_queue(const SurveySlot& s, const Segment& segment, void* arg) {
  QueueCounts* c = static_cast<QueueCounts*>(arg);
  return static_cast<int32>(s.slot.key_hash) != c->queue_id || count_slot(s, segment, &c->counts);
}

}  // namespace

void survey_segment(const Segment& segment, SurveyVisitor visit, void* arg) {
  BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  PGAlignedBlock* copy = static_cast<PGAlignedBlock*>(palloc(sizeof(PGAlignedBlock)));
  XidMemo memo = {0, XidStatus::kAborted};
  TimestampTz began = sessions_began();
  bool more = true;
  for (BlockNumber b = kMetaBlock + 1; b < blocks && more; b++) {
    CHECK_FOR_INTERRUPTS();
    Buffer buf = ReadBufferExtended(segment.map, MAIN_FORKNUM, b, RBM_NORMAL, strategy);
    LockBuffer(buf, BUFFER_LOCK_SHARE);
    memcpy(copy->data, BufferGetPage(buf), BLCKSZ);
    UnlockReleaseBuffer(buf);
    Page page = copy->data;
    if (!page_is_map_page(page)) continue;
    TimestampTz now = clock_now();
    for (int i = 0; i < map_slot_count(page) && more; i++) {
      SurveySlot s;
      s.slot = map_slots(page)[i];
      if (slot_state(s.slot) == SlotState::kEmpty) continue;
      s.place = Place{b, static_cast<uint8>(i)};
      s.status = slot_has_open_xid(s.slot) ? status_of(&memo, slot_xid(s.slot)) : XidStatus::kCommitted;
      resolve_slot(s.slot, s.status);
      end_orphan(s.slot, began);
      s.phase = slot_phase(s.slot, s.status, now);
      if (s.phase == SlotPhase::kAskRow) ask_row(segment, &s, now);
      more = visit(s, segment, arg);
    }
  }
  pfree(copy);
  FreeAccessStrategy(strategy);
}

void survey_long_segments(SurveyVisitor visit, void* arg) {
  for (int t = 0; t < kLongTables; t++) {
    Oid table = shared_table_oid(SharedKind::kLong, t);
    if (!OidIsValid(table)) continue;
    Segment segment = open_segment(table, AccessShareLock);
    survey_segment(segment, visit, arg);
    close_segment(segment, AccessShareLock);
  }
}

Queue* queue_of_segment(Oid heap, int* segment_no) {
  char* name = get_rel_name(heap);
  int id = 0;
  int n = 0;
  if (name != nullptr && get_rel_namespace(heap) == baton_data_namespace() && sscanf(name, "q%d_%d", &id, &n) == 2) {
    Queue* q = find_queue_by_id(id);
    if (q != nullptr && n >= 0 && n < q->segment_count && q->heap[n] == heap) {
      *segment_no = n;
      return q;
    }
  }
  ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("\"%s\" is not a segment of a queue", name ? name : "?")));
}

void require_look(const Queue* queue) {
  if (can_look(queue)) return;
  check_privilege(queue, ACL_SELECT);
}

void require_segments(const Queue* queue) {
  if (queue->durability != Durability::kVolatile || !RecoveryInProgress()) return;
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("queue \"%s\" is volatile and has no messages on a standby", queue->name)));
}

bool fetch_row(Relation heap, const Slot& slot, Snapshot snapshot, const int* columns, int count, Datum* values,
               bool* nulls) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  if (!ItemPointerIsValid(&tuple.t_self)) return false;
  if (ItemPointerGetBlockNumberNoCheck(&tuple.t_self) >= RelationGetNumberOfBlocks(heap)) return false;
  tuple.t_tableOid = RelationGetRelid(heap);
  Buffer buf;
  if (!fetch_heap_tuple(heap, snapshot, &tuple, &buf)) return false;
  TupleDesc desc = RelationGetDescr(heap);
  bool null;
  bool same = DatumGetInt64(heap_getattr(&tuple, kRowId + 1, desc, &null)) == slot.id && !null;
  for (int i = 0; same && i < count; i++) {
    Form_pg_attribute a = TupleDescAttr(desc, columns[i]);
    values[i] = heap_getattr(&tuple, columns[i] + 1, desc, &nulls[i]);
    if (!nulls[i]) values[i] = datumCopy(values[i], a->attbyval, a->attlen);
  }
  ReleaseBuffer(buf);
  return same;
}

}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_map_counts)
{
  Oid heap = PG_GETARG_OID(0);
  int segment_no;
  require_look(queue_of_segment(heap, &segment_no));
  Segment segment = open_segment(heap, AccessShareLock);
  Counts c;
  memset(&c, 0, sizeof(c));
  survey_segment(segment, count_slot, &c);

  Datum values[] = {Int64GetDatum(c.ready + c.lapsed), Int64GetDatum(c.lapsed),   Int64GetDatum(c.scheduled),
                    Int64GetDatum(c.claimed),          Int64GetDatum(c.settling), Int64GetDatum(c.uncommitted),
                    Int64GetDatum(c.foreign),          Int64GetDatum(c.settled),  static_cast<Datum>(0),
                    Int64GetDatum(c.expired),          Int64GetDatum(c.not_started)};
  bool nulls[sizeof(values) / sizeof(values[0])] = {false};
  const int columns[] = {kRowEnqueuedAt};
  if (!c.has_oldest || !fetch_row(segment.heap, c.oldest, GetActiveSnapshot(), columns, 1, &values[8], &nulls[8]))
    nulls[8] = true;
  close_segment(segment, AccessShareLock);

  TupleDesc desc;
  if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE) elog(ERROR, "return type must be a row type");
  // SQL of before 0.2.0 asks for the columns it knows.
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

BATON_SQL_FUNCTION(baton_map_held)
{
  Oid heap = PG_GETARG_OID(0);
  int segment_no;
  require_look(queue_of_segment(heap, &segment_no));
  InitMaterializedSRF(fcinfo, 0);
  ReturnSetInfo* rsinfo = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  HeldOutput out = {rsinfo->setResult, rsinfo->setDesc};
  Segment segment = open_segment(heap, AccessShareLock);
  survey_segment(segment, put_held, &out);
  close_segment(segment, AccessShareLock);
  return static_cast<Datum>(0);
}

// Feeds a view that shows each reader what he may see; nobody can name it, since schema baton_internal is closed.
BATON_SQL_FUNCTION(baton_long_held)
{
  InitMaterializedSRF(fcinfo, 0);
  ReturnSetInfo* rsinfo = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  HeldOutput out = {rsinfo->setResult, rsinfo->setDesc};
  survey_long_segments(put_long_held, &out);
  return static_cast<Datum>(0);
}

BATON_SQL_FUNCTION(baton_backlog)
{
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  require_look(q);
  require_segments(q);
  QueueCounts shared_counts;
  memset(&shared_counts, 0, sizeof(shared_counts));
  shared_counts.queue_id = q->id;
  Counts& c = shared_counts.counts;
  int count = q->segment_count;
  Oid* heaps = static_cast<Oid*>(palloc(sizeof(Oid) * count));
  memcpy(heaps, q->heap, sizeof(Oid) * count);
  for (int n = 0; n < count; n++) {
    Segment segment = open_segment(heaps[n], AccessShareLock);
    survey_segment(segment, count_slot, &c);
    close_segment(segment, AccessShareLock);
  }
  survey_long_segments(count_slot_of_queue, &shared_counts);
  PG_RETURN_FLOAT8(static_cast<float8>(c.ready + c.lapsed + c.claimed + c.settling));
}

// Id of a queue the caller may look at: 42704 and 42501 for the SQL functions that name one.
BATON_SQL_FUNCTION(baton_require_look)
{
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  require_look(q);
  PG_RETURN_INT32(q->id);
}

BATON_SQL_FUNCTION(baton_at_home)
{
  PG_RETURN_BOOL(static_cast<uint64>(PG_GETARG_INT64(0)) == GetSystemIdentifier() && PG_GETARG_OID(1) == MyDatabaseId);
}

BATON_SQL_FUNCTION(baton_library_version)
{
  (void)fcinfo;
  PG_RETURN_TEXT_P(cstring_to_text(BATON_VERSION));
}
