// The enqueue verbs. They join the caller's transaction: nothing is visible, and nobody is woken, before its commit.
#include "../core/envelope.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "arguments.hpp"
#include "enqueue_rows.hpp"

namespace baton {
namespace {

enum Arg { kQueue = 0, kPayload, kMessageId, kRoutingKey, kMessageClass, kPriority, kHeaders, kDelay, kNotBefore, kExpiresAt, kPayloadRef };

Queue* producer_queue(FunctionCallInfo fcinfo, const char* verb) {
  require_writable(verb);
  Queue* q = find_queue(PG_ARGISNULL(kQueue) ? nullptr : PG_GETARG_TEXT_PP(kQueue));
  check_privilege(q, ACL_INSERT);
  return q;
}

text* text_or_null(FunctionCallInfo fcinfo, int arg) { return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_TEXT_PP(arg); }

Datum enqueue_one(FunctionCallInfo fcinfo, const char* verb, bool bytes) {
  Queue* q = producer_queue(fcinfo, verb);
  EnvelopeInput in;
  memset(&in, 0, sizeof(in));
  in.has_payload = !PG_ARGISNULL(kPayload);
  in.payload = PG_GETARG_DATUM(kPayload);
  in.payload_is_bytes = bytes;
  in.message_id = text_or_null(fcinfo, kMessageId);
  in.routing_key = text_or_null(fcinfo, kRoutingKey);
  in.message_class = text_or_null(fcinfo, kMessageClass);
  in.has_priority = !PG_ARGISNULL(kPriority);
  in.priority = in.has_priority ? PG_GETARG_INT32(kPriority) : 0;
  in.has_headers = !PG_ARGISNULL(kHeaders);
  in.headers = PG_GETARG_DATUM(kHeaders);
  in.delay = PG_ARGISNULL(kDelay) ? nullptr : PG_GETARG_INTERVAL_P(kDelay);
  in.has_not_before = !PG_ARGISNULL(kNotBefore);
  in.not_before = in.has_not_before ? PG_GETARG_TIMESTAMPTZ(kNotBefore) : 0;
  in.has_expires_at = !PG_ARGISNULL(kExpiresAt);
  in.expires_at = in.has_expires_at ? PG_GETARG_TIMESTAMPTZ(kExpiresAt) : 0;
  in.payload_ref = text_or_null(fcinfo, kPayloadRef);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  Envelope e;
  make_envelope(q, in, clock_now(), &e);
  int64 id;
  enqueue_rows(q, &e, 1, &id);
  Datum values[2] = {Int64GetDatum(id), CStringGetTextDatum(envelope_state(e))};
  bool nulls[2] = {false, false};
  tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  return (Datum)0;
}

struct BatchArguments {
  ArrayArgument payloads, message_ids, routing_keys, message_classes, priorities, headers, delays, not_befores, expires_ats, payload_refs;
};

text* text_element(const ArrayArgument& a, int i) {
  Datum d;
  return array_element(a, i, &d) ? DatumGetTextPP(d) : nullptr;
}

void batch_input(const BatchArguments& a, int i, bool bytes, EnvelopeInput* in) {
  memset(in, 0, sizeof(*in));
  Datum d;
  in->has_payload = array_element(a.payloads, i, &in->payload);
  in->payload_is_bytes = bytes;
  in->message_id = text_element(a.message_ids, i);
  in->routing_key = text_element(a.routing_keys, i);
  in->message_class = text_element(a.message_classes, i);
  in->payload_ref = text_element(a.payload_refs, i);
  in->has_priority = array_element(a.priorities, i, &d);
  if (in->has_priority) in->priority = DatumGetInt32(d);
  in->has_headers = array_element(a.headers, i, &in->headers);
  if (array_element(a.delays, i, &d)) in->delay = DatumGetIntervalP(d);
  in->has_not_before = array_element(a.not_befores, i, &d);
  if (in->has_not_before) in->not_before = DatumGetTimestampTz(d);
  in->has_expires_at = array_element(a.expires_ats, i, &d);
  if (in->has_expires_at) in->expires_at = DatumGetTimestampTz(d);
}

// Says which row of a batch was bad, whatever was wrong with it.
void name_bad_row(void* arg) { errcontext("message %d of the batch", *static_cast<int*>(arg) + 1); }

Datum enqueue_many(FunctionCallInfo fcinfo, const char* verb, bool bytes) {
  Queue* q = producer_queue(fcinfo, verb);
  if (PG_ARGISNULL(kPayload)) raise_bad_argument("payloads", "must not be null");
  BatchArguments a;
  a.payloads = array_argument("payloads", fcinfo, kPayload, bytes ? BYTEAOID : JSONBOID);
  a.message_ids = array_argument("message_ids", fcinfo, kMessageId, TEXTOID);
  a.routing_keys = array_argument("routing_keys", fcinfo, kRoutingKey, TEXTOID);
  a.message_classes = array_argument("message_classes", fcinfo, kMessageClass, TEXTOID);
  a.priorities = array_argument("priorities", fcinfo, kPriority, INT4OID);
  a.headers = array_argument("headers", fcinfo, kHeaders, JSONBOID);
  a.delays = array_argument("delays", fcinfo, kDelay, INTERVALOID);
  a.not_befores = array_argument("not_befores", fcinfo, kNotBefore, TIMESTAMPTZOID);
  a.expires_ats = array_argument("expires_ats", fcinfo, kExpiresAt, TIMESTAMPTZOID);
  a.payload_refs = array_argument("payload_refs", fcinfo, kPayloadRef, TEXTOID);
  int n = Max(a.payloads.count, 0);
  if (n > kMaxBatchItems)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payloads has too many elements"),
                    errdetail("It has %d; the limit is %d.", n, kMaxBatchItems)));
  const ArrayArgument* all[] = {&a.message_ids, &a.routing_keys, &a.message_classes, &a.priorities, &a.headers,
                                &a.delays,      &a.not_befores,  &a.expires_ats,     &a.payload_refs};
  for (const ArrayArgument* x : all) check_array_length(*x, n);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  auto* rows = static_cast<Envelope*>(MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Envelope) * static_cast<Size>(Max(n, 1))));
  auto* ids = static_cast<int64*>(palloc(sizeof(int64) * static_cast<Size>(Max(n, 1))));
  TimestampTz now = clock_now();
  int at = 0;
  ErrorContextCallback context;
  context.callback = name_bad_row;
  context.arg = &at;
  context.previous = error_context_stack;
  error_context_stack = &context;
  for (; at < n; at++) {
    EnvelopeInput in;
    batch_input(a, at, bytes, &in);
    make_envelope(q, in, now, &rows[at]);
  }
  error_context_stack = context.previous;
  enqueue_rows(q, rows, n, ids);
  Datum ready = CStringGetTextDatum("ready");
  Datum scheduled = CStringGetTextDatum("scheduled");
  for (int i = 0; i < n; i++) {
    Datum values[3] = {Int32GetDatum(i + 1), Int64GetDatum(ids[i]), rows[i].due != 0 ? scheduled : ready};
    bool nulls[3] = {false, false, false};
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  }
  return (Datum)0;
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_enqueue) { return baton::enqueue_one(fcinfo, "enqueue", false); }
BATON_SQL_FUNCTION(baton_enqueue_bytes) { return baton::enqueue_one(fcinfo, "enqueue_bytes", true); }
BATON_SQL_FUNCTION(baton_enqueue_batch) { return baton::enqueue_many(fcinfo, "enqueue_batch", false); }
BATON_SQL_FUNCTION(baton_enqueue_batch_bytes) { return baton::enqueue_many(fcinfo, "enqueue_batch_bytes", true); }
