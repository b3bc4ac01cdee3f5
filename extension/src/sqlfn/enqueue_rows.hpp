// From the arguments of an enqueue to message rows: behind every way a message gets into a queue.
#pragma once

#include "../leasemap/write_rows.hpp"
#include "../pg/queue.hpp"

namespace baton {

// Raw inputs of one message, before validation. Null pointers: not given.
struct EnvelopeInput {
  Datum payload;
  bool has_payload;
  bool payload_is_bytes;
  text* message_id;
  text* routing_key;
  text* message_class;
  bool has_priority;
  int32 priority;
  bool has_headers;
  Datum headers;
  Interval* delay;
  bool has_not_before;
  TimestampTz not_before;
  bool has_expires_at;
  TimestampTz expires_at;
  text* payload_ref;
};

// Validates against the queue's limits and fills *e. Raises before anything is written.
void make_envelope(const Queue* queue, const EnvelopeInput& in, TimestampTz now, Envelope* e);

// Writes rows and slots, in order, in the current transaction. ids[i]: the row's own, or else given by the queue's sequence.
void enqueue_rows(Queue* queue, Envelope* rows, int count, int64* ids);

const char* envelope_state(const Envelope& e);  // "ready" or "scheduled"

}  // namespace baton
