// See enqueue_rows.hpp.
#include "enqueue_rows.hpp"

#include "../core/envelope.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"

namespace baton {
namespace {

void check_size(const char* field, Datum value, int max_bytes) {
  Size n = toast_raw_datum_size(value) - VARHDRSZ;
  if (n > static_cast<Size>(max_bytes))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is too large", field),
                    errdetail("It has %zu bytes; the limit of the queue is %d.", n, max_bytes),
                    errhint("Store large content elsewhere and pass its address as payload_ref.")));
}

void set_text(Envelope* e, int column, text* value) {
  e->nulls[column] = value == nullptr;
  e->values[column] = PointerGetDatum(value);
}

}  // namespace

void make_envelope(const Queue* queue, const EnvelopeInput& in, TimestampTz now, Envelope* e) {
  for (int i = 0; i < kRowColumns; i++) {
    e->values[i] = 0;
    e->nulls[i] = true;
  }
  if (!in.has_payload && !in.payload_ref)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload and payload_ref are both null"),
                    errhint("Pass a payload (for an empty one: '{}' or 'null'), or the address of one.")));
  if (in.has_payload) {
    check_size("payload", in.payload, queue->max_payload_bytes);
    int column = in.payload_is_bytes ? kRowPayloadBytes : kRowPayload;
    e->values[column] = in.payload;
    e->nulls[column] = false;
  }
  if (in.message_id) check_text_length("message_id", in.message_id, kMaxMessageIdBytes);
  if (in.routing_key) check_text_length("routing_key", in.routing_key, kMaxRoutingKeyBytes);
  if (in.message_class) check_text_length("message_class", in.message_class, kMaxMessageClassBytes);
  if (in.payload_ref) check_text_length("payload_ref", in.payload_ref, kMaxPayloadRefBytes);
  set_text(e, kRowMessageId, in.message_id);
  set_text(e, kRowRoutingKey, in.routing_key);
  set_text(e, kRowMessageClass, in.message_class);
  set_text(e, kRowPayloadRef, in.payload_ref);
  if (in.has_priority && in.priority != kDefaultPriority) {
    if (in.priority < kMinPriority || in.priority > kMaxPriority)
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("priority is out of range"),
                      errdetail("It is %d; allowed is %d to %d.", in.priority, kMinPriority, kMaxPriority)));
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("priority %d is not supported yet", in.priority),
                    errdetail("Only the default priority, %d, is.", kDefaultPriority)));
  }
  if (in.has_headers) {
    check_size("headers", in.headers, queue->max_headers_bytes);
    Jsonb* j = DatumGetJsonbP(in.headers);
    if (!JB_ROOT_IS_OBJECT(j)) raise_bad_argument("headers", "must be a JSON object");
    e->values[kRowHeaders] = in.headers;
    e->nulls[kRowHeaders] = false;
  }
  e->due = due_argument(in.delay, in.has_not_before ? &in.not_before : nullptr, now, queue->max_delay);
  if (in.has_expires_at) {
    check_timestamp("expires_at", in.expires_at);
    check_expiry(in.expires_at, e->due, now);
    e->values[kRowExpiresAt] = TimestampTzGetDatum(in.expires_at);
    e->nulls[kRowExpiresAt] = false;
  }
  e->values[kRowEnqueuedAt] = TimestampTzGetDatum(now);
  e->nulls[kRowEnqueuedAt] = false;
  if (e->due != 0) {
    e->values[kRowNotBefore] = TimestampTzGetDatum(e->due);
    e->nulls[kRowNotBefore] = false;
  }
  e->lane = kDefaultLane;
  e->key_hash = in.routing_key ? routing_key_hash(in.routing_key) : 0;
  e->generation = 0;
  e->failures = 0;
  e->first = false;
  e->claim = nullptr;
}

void enqueue_rows(Queue* queue, Envelope* rows, int count, int64* ids) {
  if (count == 0) return;
  write_rows(queue, rows, count, ids);
  baton::count(queue->id, Counter::kEnqueued, static_cast<uint64>(count));
}

const char* envelope_state(const Envelope& e) { return e.due != 0 ? "scheduled" : "ready"; }

}  // namespace baton
