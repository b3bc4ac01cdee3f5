// The claiming verbs: claim, take, settle_and_claim.
#include "../core/envelope.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"
#include "claim_messages.hpp"
#include "session_claims.hpp"
#include "settle_tokens.hpp"
#include "verdicts.hpp"
#include "wake_debt.hpp"

namespace baton {
namespace {

enum DeliveryColumn {
  kToken = 0,
  kId,
  kMessageId,
  kRoutingKey,
  kMessageClass,
  kPriority,
  kGeneration,
  kFailures,
  kEnqueuedAt,
  kLeaseUntil,
  kFence,
  kHeaders,
  kPayload,
  kPayloadBytes,
  kPayloadRef,
  kExpiresAt,
  kDeliveryColumns
};

Queue* worker_queue(FunctionCallInfo fcinfo, const char* verb) {
  require_writable(verb);
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  check_privilege(q, ACL_UPDATE);
  wake_used(q->id);
  return q;
}

int items_argument(FunctionCallInfo fcinfo, int arg) {
  int n = PG_ARGISNULL(arg) ? 1 : PG_GETARG_INT32(arg);
  if (n < 1 || n > kMaxClaimItems)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("max_items is out of range"),
                    errdetail("It is %d; allowed is 1 to %d.", n, kMaxClaimItems)));
  return n;
}

int64 bytes_argument(FunctionCallInfo fcinfo, int arg) {
  if (PG_ARGISNULL(arg)) return 0;
  int n = PG_GETARG_INT32(arg);
  if (n < 1) ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("max_bytes must be positive"), errdetail("It is %d.", n)));
  return n;
}

const ArrayType* classes_argument(FunctionCallInfo fcinfo, int arg) { return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_ARRAYTYPE_P(arg); }

// May messages be handed out at all? Otherwise a claim comes back empty, and why_empty says why.
bool hands_out(const Queue* q) { return q->at_home && !q->paused && claims_enabled; }

// The row's values, with toasted ones fetched: the row may be gone when the client looks at them.
void row_values(Relation heap, HeapTuple row, Datum* values, bool* nulls) {
  TupleDesc desc = RelationGetDescr(heap);
  for (int i = 0; i < kRowColumns; i++) {
    values[i] = heap_getattr(row, i + 1, desc, &nulls[i]);
    if (!nulls[i] && TupleDescAttr(desc, i)->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
      values[i] = PointerGetDatum(detoast_external_attr(reinterpret_cast<struct varlena*>(DatumGetPointer(values[i]))));
  }
}

Datum token_datum(const Queue* q, int32 incarnation, const Claimed& c, const SipKey& key) {
  Token t;
  t.database = MyDatabaseId;
  t.queue = static_cast<uint32>(q->id);
  t.incarnation = static_cast<uint32>(incarnation);
  t.segment = static_cast<uint16>(c.segment);
  t.epoch = c.epoch;
  t.block = c.place.block;
  t.index = c.place.index;
  t.id = c.slot.id;
  t.generation = c.slot.generation;
  t.nonce = c.slot.nonce;
  t.claimed_at = slot_claimed_at(c.slot);
  auto* out = static_cast<text*>(palloc(VARHDRSZ + kTokenTextLength));
  SET_VARSIZE(out, VARHDRSZ + kTokenTextLength);
  format_token(t, key, VARDATA(out));
  return PointerGetDatum(out);
}

void put_deliveries(const Queue* q, const ClaimResult& r, Tuplestorestate* store, TupleDesc desc, int lead) {
  if (r.count == 0) return;
  SipKeyPair pair = token_key();
  SipKey key{pair.k0, pair.k1};
  // Read when the slots have been taken: a fence that passes them from now on ends these claims, and one that has passed
  // them has been committed, or its commit kills these tokens.
  int32 incarnation = incarnation_now(q);
  Relation heap = nullptr;
  int opened = -1;
  for (int i = 0; i < r.count; i++) {
    const Claimed& c = r.items[i];
    if (c.segment != opened) {
      if (heap) table_close(heap, NoLock);
      heap = table_open(q->heap[c.segment], NoLock);
      opened = c.segment;
    }
    Datum row[kRowColumns];
    bool row_nulls[kRowColumns];
    blame_claim(c.slot.nonce);
    row_values(heap, c.row, row, row_nulls);
    Datum out[2 + kDeliveryColumns];
    bool nulls[2 + kDeliveryColumns];
    memset(nulls, true, sizeof(nulls));
    Datum* v = out + lead;
    bool* n = nulls + lead;
    auto copy = [&](int to, int from) {
      v[to] = row[from];
      n[to] = row_nulls[from];
    };
    auto set = [&](int to, Datum d) {
      v[to] = d;
      n[to] = false;
    };
    set(kToken, token_datum(q, incarnation, c, key));
    set(kId, Int64GetDatum(c.slot.id));
    copy(kMessageId, kRowMessageId);
    copy(kRoutingKey, kRowRoutingKey);
    copy(kMessageClass, kRowMessageClass);
    set(kPriority, row_nulls[kRowPriority] ? Int32GetDatum(kDefaultPriority) : row[kRowPriority]);
    set(kGeneration, Int64GetDatum(c.slot.generation));
    set(kFailures, Int32GetDatum(c.slot.failures));
    copy(kEnqueuedAt, kRowEnqueuedAt);
    set(kLeaseUntil, TimestampTzGetDatum(c.slot.deadline));
    set(kFence, Int64GetDatum(static_cast<int64>((c.epoch << 32) | c.slot.generation)));
    copy(kHeaders, kRowHeaders);
    copy(kPayload, kRowPayload);
    copy(kPayloadBytes, kRowPayloadBytes);
    copy(kPayloadRef, kRowPayloadRef);
    copy(kExpiresAt, kRowExpiresAt);
    tuplestore_putvalues(store, desc, out, nulls);
  }
  blame_claim(0);
  if (heap) table_close(heap, NoLock);
}

// A claim has no transaction id, so its commit flushes nothing: it flushes itself. With settlements in the same call the
// commit's own flush, which their durability class asks for, covers it.
void flush_claims(const Queue* q, const ClaimResult& r, bool settled) {
  if (r.lsn == InvalidXLogRecPtr || !q->claim_flush || q->durability == Durability::kAsync || q->durability == Durability::kVolatile) return;
  if (settled && !IsTransactionBlock()) return;
  XLogFlush(r.lsn);
}

// What a lease of this session depends on, beyond its length.
void bind_lease(ClaimRequest* r) {
  r->start_within_us = r->queue->start_within;
  r->session_bound = session_claims;
  if (r->session_bound) reserve_session_claims(*r->queue, r->max_items);
}

ClaimRequest new_request(Queue* q, const char* worker) {
  ClaimRequest r;
  memset(&r, 0, sizeof(r));
  r.queue = q;
  r.worker = worker_number(worker);
  r.max_items = 1;
  r.lease_us = q->lease;
  return r;
}

int64 lease_argument(FunctionCallInfo fcinfo, int arg, const Queue* q) {
  if (PG_ARGISNULL(arg)) return q->lease;
  return interval_argument("lease", PG_GETARG_INTERVAL_P(arg), q->min_lease, q->max_lease);
}

Datum claim(FunctionCallInfo fcinfo) {
  Queue* q = worker_queue(fcinfo, "claim");
  ClaimRequest r = new_request(q, claim_worker_name(fcinfo, 1));
  r.max_items = items_argument(fcinfo, 2);
  r.lease_us = lease_argument(fcinfo, 3, q);
  r.classes = classes_argument(fcinfo, 4);
  r.max_bytes = bytes_argument(fcinfo, 5);
  if (!PG_ARGISNULL(6))
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("attempt_id is not supported yet"),
                    errhint("Leave it out; a claim whose reply was lost ends with its lease.")));
  ReturnSetInfo* rsinfo = begin_result_in_from(fcinfo, "claim");
  if (!hands_out(q)) return (Datum)0;
  bind_lease(&r);
  ClaimResult result;
  begin_verb();
  claim_messages(r, &result);
  put_deliveries(q, result, rsinfo->setResult, rsinfo->setDesc, 0);
  flush_claims(q, result, false);
  end_verb();
  return (Datum)0;
}

Datum take(FunctionCallInfo fcinfo) {
  Queue* q = worker_queue(fcinfo, "take");
  ClaimRequest r = new_request(q, claim_worker_name(fcinfo, 2));
  r.max_items = items_argument(fcinfo, 1);
  r.classes = classes_argument(fcinfo, 3);
  r.max_bytes = bytes_argument(fcinfo, 4);
  r.take = true;
  ReturnSetInfo* rsinfo = begin_result_in_from(fcinfo, "take");
  if (!hands_out(q)) return (Datum)0;
  ClaimResult result;
  begin_verb();
  require_durability(q->durability);
  claim_messages(r, &result);
  for (int i = 0; i < result.count; i++) {
    const Claimed& c = result.items[i];
    Relation heap = table_open(q->heap[c.segment], NoLock);
    Datum values[kRowColumns];
    bool nulls[kRowColumns];
    row_values(heap, c.row, values, nulls);
    auto set = [&](int column, Datum d) {
      values[column] = d;
      nulls[column] = false;
    };
    set(kRowQueueId, Int32GetDatum(q->id));
    set(kRowGeneration, Int32GetDatum(static_cast<int32>(c.slot.generation)));
    set(kRowFailures, Int32GetDatum(c.slot.failures));
    if (nulls[kRowPriority]) set(kRowPriority, Int32GetDatum(kDefaultPriority));
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
    table_close(heap, NoLock);
  }
  baton::count(q->id, Counter::kAcked, static_cast<uint64>(result.count));
  end_verb();
  return (Datum)0;
}

Datum settle_and_claim(FunctionCallInfo fcinfo) {
  Queue* q = worker_queue(fcinfo, "settle_and_claim");
  int n = 0;
  Settlement* items = nullptr;
  if (!PG_ARGISNULL(1)) {
    items = settlements_from_tokens(fcinfo, 1, &n);
    read_verdicts(fcinfo, 2, 8, 9, items, n);
  }
  ClaimRequest r = new_request(q, claim_worker_name(fcinfo, 3));
  r.max_items = items_argument(fcinfo, 4);
  r.lease_us = lease_argument(fcinfo, 5, q);
  r.classes = classes_argument(fcinfo, 6);
  r.max_bytes = bytes_argument(fcinfo, 7);
  ReturnSetInfo* rsinfo = begin_result_in_from(fcinfo, "settle_and_claim");
  settle_tokens(items, n, false);
  bool settled = false;
  for (int i = 0; i < n; i++) {
    settled |= succeeded(items[i].outcome);
    Datum values[2 + kDeliveryColumns];
    bool nulls[2 + kDeliveryColumns];
    memset(nulls, true, sizeof(nulls));
    values[0] = Int32GetDatum(i + 1);
    values[1] = CStringGetTextDatum(outcome_entry(items[i].outcome).word);
    nulls[0] = nulls[1] = false;
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  }
  if (!hands_out(q)) return (Datum)0;
  bind_lease(&r);
  ClaimResult result;
  begin_verb();
  claim_messages(r, &result);
  put_deliveries(q, result, rsinfo->setResult, rsinfo->setDesc, 2);
  flush_claims(q, result, settled);
  end_verb();
  return (Datum)0;
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_claim) { return baton::claim(fcinfo); }
BATON_SQL_FUNCTION(baton_take) { return baton::take(fcinfo); }
BATON_SQL_FUNCTION(baton_settle_and_claim) { return baton::settle_and_claim(fcinfo); }
