// The retained tables: acknowledged messages of all queues with retention (sql/36_retained.sql, core/retained_ring.hpp).
#pragma once

#include "../core/retained_ring.hpp"
#include "../leasemap/row.hpp"
#include "../pg/queue.hpp"

namespace baton {

// Columns of a retained table, in order.
enum RetainedColumn : int {
  kRetQueueId = 0,
  kRetFailures,
  kRetId,
  kRetSettledAt,
  kRetDropAt,
  kRetGeneration,
  kRetEnqueuedAt,
  kRetNotBefore,
  kRetExpiresAt,
  kRetLane,
  kRetPriority,
  kRetWorker,
  kRetMessageId,
  kRetRoutingKey,
  kRetMessageClass,
  kRetPayloadRef,
  kRetHeaders,
  kRetPayload,
  kRetPayloadBytes,
  kRetColumns,
};

// InvalidOid where the SQL of this database (before 0.2.0) has none.
Oid retained_table_oid(int table);
// Number of a retained table, -1 for any other relation.
int retained_number(Oid relation);

// What baton_internal.retained_note says of a table, as committed by now; zero where it says nothing.
struct RetainedNote {
  TimestampTz passed_at;     // found that everything in it may go ...
  uint64 passed_xid;         // ... at this point in the order of transactions
  uint64 guard_xid;          // a reader must see it as over
  TimestampTz truncated_at;
};
RetainedNote read_retained_note(int table);
void write_retained_note(int table, const RetainedNote& note);

}  // namespace baton
