// explain_message: one row per obstacle that keeps a message from running, with the sessions behind it. For people.
#include "../pg/clock.hpp"
#include "../pg/guc.hpp"
#include "../pg/shmem.hpp"
#include "../leasemap/find.hpp"
#include "../leasemap/row.hpp"
#include "../retained/read.hpp"
#include "as_owner.hpp"
#include "survey.hpp"

namespace baton {

namespace {

struct Output {
  Tuplestorestate* store;
  TupleDesc desc;
  int rows;
};

constexpr int kMaxXids = 32;
struct Xids {
  int count;
  TransactionId ids[kMaxXids];
};

void put(Output* out, const char* obstacle, const char* detail, const Xids* xids, TimestampTz until) {
  Datum values[4];
  bool nulls[4] = {false, detail == nullptr, true, until == 0};
  values[0] = CStringGetTextDatum(obstacle);
  if (detail != nullptr) values[1] = CStringGetTextDatum(detail);
  if (xids != nullptr && xids->count > 0) {
    StringInfoData sql;
    initStringInfo(&sql);
    appendStringInfoString(
        &sql,
        "SELECT pg_catalog.array_agg(DISTINCT pid) FROM pg_catalog.pg_locks WHERE locktype = 'transactionid'"
        " AND granted AND mode = 'ExclusiveLock' AND pid IS NOT NULL AND transactionid::pg_catalog.text IN (");
    for (int i = 0; i < xids->count; i++) appendStringInfo(&sql, "%s'%u'", i == 0 ? "" : ", ", xids->ids[i]);
    appendStringInfoChar(&sql, ')');
    run(sql.data);
    if (SPI_processed > 0) values[2] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &nulls[2]);
  }
  values[3] = TimestampTzGetDatum(until);
  tuplestore_putvalues(out->store, out->desc, values, nulls);
  out->rows++;
}

// Transactions that hold a lock on the row, or are about to delete it.
void row_lockers(Relation heap, const Slot& slot, Xids* xids) {
  xids->count = 0;
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  tuple.t_tableOid = RelationGetRelid(heap);
  if (!ItemPointerIsValid(&tuple.t_self)) return;
  if (ItemPointerGetBlockNumberNoCheck(&tuple.t_self) >= RelationGetNumberOfBlocks(heap)) return;
  Buffer buf;
  if (!fetch_heap_tuple(heap, SnapshotAny, &tuple, &buf)) return;
  uint16 infomask = tuple.t_data->t_infomask;
  TransactionId xmax = HeapTupleHeaderGetRawXmax(tuple.t_data);
  ReleaseBuffer(buf);
  if (infomask & HEAP_XMAX_INVALID) return;
  TransactionId candidates[kMaxXids];
  int n = 0;
  if (infomask & HEAP_XMAX_IS_MULTI) {
    MultiXactMember* members;
    int count = GetMultiXactIdMembers(xmax, &members, false, HEAP_XMAX_IS_LOCKED_ONLY(infomask));
    for (int i = 0; i < count && n < kMaxXids; i++) candidates[n++] = members[i].xid;
  } else {
    candidates[n++] = xmax;
  }
  for (int i = 0; i < n; i++)
    if (TransactionIdIsNormal(candidates[i]) && !TransactionIdIsCurrentTransactionId(candidates[i]) &&
        TransactionIdIsInProgress(candidates[i]))
      xids->ids[xids->count++] = candidates[i];
}

const char* settled_word(SettleKind kind) {
  switch (kind) {
    case SettleKind::kAcked:
      return "acknowledged";
    case SettleKind::kQuarantined:
      return "quarantined";
    case SettleKind::kMoved:
    case SettleKind::kDeferred:
      return "moved";
    case SettleKind::kExpired:
      return "expired";
    case SettleKind::kAborted:
      return "its enqueue was rolled back";
    default:
      return "purged";
  }
}

bool explain_quarantined(const Queue* q, int64 id, Output* out) {
  run(
      psprintf("SELECT 'cause: ' || cause || coalesce(', reason: ' || reason, '') || ', since ' || "
               "quarantined_at::pg_catalog.timestamptz(0)::text"
               " FROM baton_data.quarantined WHERE queue_id = %d AND id = " INT64_FORMAT,
               q->id, id));
  if (SPI_processed == 0) return false;
  put(out, "quarantined", SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), nullptr, 0);
  return true;
}

bool explain_retained(const Queue* q, int64 id, Output* out) {
  Datum ids[] = {Int64GetDatum(id)};
  RetainedFilter filter;
  memset(&filter, 0, sizeof(filter));
  filter.queue_id = q->id;
  filter.has_ids = true;
  filter.ids = PointerGetDatum(construct_array(ids, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
  Portal cursor = open_retained(filter,
                                "'acknowledged' || coalesce(' by ' || r.worker, '') || ' at ' || r.settled_at::pg_catalog.timestamptz(0)"
                                " || ', retained until ' || r.drop_at::pg_catalog.timestamptz(0)",
                                "LIMIT 1");
  if (!cursor) return false;
  SPI_cursor_fetch(cursor, true, 1);
  bool found = SPI_processed > 0;
  if (found) put(out, "settled", SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), nullptr, 0);
  SPI_cursor_close(cursor);
  return found;
}

void explain_queue(const Queue* q, Output* out) {
  if (!enabled) put(out, "disabled", "pg_baton.enabled is off", nullptr, 0);
  if (!claims_enabled) put(out, "claims_off", "pg_baton.claims is off", nullptr, 0);
  if (!q->at_home)
    put(out, "restored",
        psprintf("the queue was copied from elsewhere: SELECT baton.adopt(%s)", quote_literal_cstr(q->name)), nullptr,
        0);
  if (q->paused) put(out, "paused", psprintf("SELECT baton.resume(%s)", quote_literal_cstr(q->name)), nullptr, 0);
}

void explain_row(const Queue* q, const Segment& segment, const SurveySlot& s, TimestampTz now, Output* out) {
  Datum expires;
  bool no_expiry;
  const int columns[] = {kRowExpiresAt};
  if (!fetch_row(segment.heap, s.slot, GetActiveSnapshot(), columns, 1, &expires, &no_expiry)) {
    put(out, "row_gone", "its row was deleted by plain SQL; the next look at the slot settles it", nullptr, 0);
    return;
  }
  if (!no_expiry && DatumGetTimestampTz(expires) <= now)
    put(out, "expired", psprintf("expired at %s", timestamptz_to_str(DatumGetTimestampTz(expires))), nullptr, 0);
  int failures = s.slot.failures + (s.phase == SlotPhase::kLapsed ? 1 : 0);
  if (s.phase != SlotPhase::kHeld && failures >= q->max_attempts)
    put(out, "exhausted", psprintf("%d failures of %d: will be quarantined", failures, q->max_attempts), nullptr, 0);
  else if (s.phase != SlotPhase::kHeld && s.slot.generation >= static_cast<uint32>(q->claim_ceiling))
    put(out, "exhausted", psprintf("%u claims of %d: will be quarantined", s.slot.generation, q->claim_ceiling),
        nullptr, 0);
  Xids xids;
  row_lockers(segment.heap, s.slot, &xids);
  if (xids.count > 0)
    put(out, "locked", "its row is locked or being deleted by plain SQL; claims pass it over", &xids, 0);
}

void explain_slot(const Queue* q, const Segment& segment, const SurveySlot& s, Output* out) {
  TimestampTz now = clock_now();
  Xids xids = {1, {static_cast<TransactionId>(slot_xid(s.slot))}};
  char worker[64];
  worker_name(s.slot.worker, worker, sizeof(worker));
  switch (s.phase) {
    case SlotPhase::kPending:
      put(out, "uncommitted",
          s.status == XidStatus::kMine ? "enqueued by this transaction"
                                       : "the transaction that enqueues it is still open",
          &xids, 0);
      return;
    case SlotPhase::kSettling:
      put(out, "settling",
          psprintf("claim %u of %s is being settled by an open transaction", s.slot.generation, worker), &xids, 0);
      return;
    case SlotPhase::kForeign:
      put(out, "foreign",
          psprintf("arrived by logical replication: SELECT baton.activate(%s)", quote_literal_cstr(q->name)), nullptr,
          0);
      break;
    case SlotPhase::kLater:
      put(out, "scheduled", s.slot.failures > 0 ? psprintf("waits after failure %d", s.slot.failures) : "not yet due",
          nullptr, s.slot.deadline);
      break;
    case SlotPhase::kHeld:
      put(out, "claimed",
          psprintf("claim %u, held by %s since %s, %s", s.slot.generation, worker,
                   timestamptz_to_str(slot_claimed_at(s.slot)), s.slot.started_ms == 0 ? "not started" : "started"),
          nullptr, s.slot.deadline);
      break;
    case SlotPhase::kLapsed: {
      TimestampTz at = slot_eligible_at(s.slot, static_cast<int64>(lapse_spread_ms) * 1000);
      if (at > now) put(out, "scheduled", "its lease has ended; comes back by pg_baton.lapse_spread", nullptr, at);
      break;
    }
    default:
      break;
  }
  explain_row(q, segment, s, now, out);
}

}  // namespace

}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_explain_message)
{
  const Queue* found = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  require_look(found);
  require_segments(found);
  if (PG_ARGISNULL(1)) ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("id must not be null")));
  Queue q = *found;
  int64 id = PG_GETARG_INT64(1);
  InitMaterializedSRF(fcinfo, 0);
  ReturnSetInfo* rsinfo = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  Output out = {rsinfo->setResult, rsinfo->setDesc, 0};

  Elevated e = become_extension_owner();
  // What is, not what was when the caller's transaction began.
  PushActiveSnapshot(GetLatestSnapshot());
  FoundMessage m;
  bool any = find_message(&q, id, &m);
  if (any && slot_is_unsettled(m.slot)) {
    explain_queue(&q, &out);
    Segment segment = open_segment(m.heap, AccessShareLock);
    explain_slot(&q, segment, SurveySlot{m.slot, slot_phase(m.slot, m.status, clock_now()), m.status, m.place}, &out);
    close_segment(segment, AccessShareLock);
    if (out.rows == 0) put(&out, "none", "can be claimed now", nullptr, 0);
  } else if (!explain_quarantined(&q, id, &out) && !explain_retained(&q, id, &out)) {
    if (any)
      put(&out, "settled", settled_word(slot_kind(m.slot)), nullptr, 0);
    else
      put(&out, "not_found", "never enqueued, or settled and its segment reclaimed", nullptr, 0);
  }
  PopActiveSnapshot();
  become_caller(e);
  return static_cast<Datum>(0);
}
