// Writing message rows and their slots, in the queue's write segment or, for what is due later, in a due-time bucket.
// Order: rows first, then slots, so that no slot ever points to a row that was never written.
#pragma once

#include "../pg/queue.hpp"
#include "row.hpp"
#include "shared_tables.hpp"

namespace baton {

// One message to be written. Values point to memory of the caller.
struct Envelope {
  Datum values[kRowColumns];
  bool nulls[kRowColumns];
  uint32 lane;
  uint32 key_hash;
  uint32 generation;
  uint16 failures;
  TimestampTz due;    // 0: at once
  bool first;         // is offered before what waits in the queue
  const Slot* claim;  // of a message that is moved with its claim; nullptr: none
};

// Writes rows and slots, in order, in the current transaction. ids[i] (may be null): the row's own id, or else given by the
// queue's sequence.
void write_rows(Queue* queue, Envelope* rows, int count, int64* ids);

// Writes rows that have their ids into a shared table, each into the lane that its place demands.
void write_shared_rows(const Queue* queue, const SharedTable& table, Envelope** rows, int count);

// Is the time so far ahead that the message waits in a bucket? False where this database's SQL has none. May be asked under
// a page lock.
bool waits_in_bucket(const Queue* queue, TimestampTz due, TimestampTz now);

}  // namespace baton
