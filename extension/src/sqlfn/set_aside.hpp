// What becomes of a row whose slot has been settled: deleted, or moved into quarantine with evidence.
#pragma once

#include "../leasemap/map.hpp"
#include "../pg/queue.hpp"

namespace baton {

struct QuarantineEvidence {
  const char* cause;  // verb, max_attempts, claim_ceiling, expired
  text* reason;
  bool has_error;
  Datum error;
  bool count_failure;  // the event itself is a failure that the slot does not show yet
};

// Moves the row into baton_data.quarantined, in the current transaction. Bypasses the caller's privileges on that table:
// the right to settle has been checked.
void quarantine_row(const Queue* queue, Relation heap, const Slot& slot, const QuarantineEvidence& evidence);

// Adds a line to baton_data.evidence.
void add_evidence(int32 queue_id, const Slot& slot, bool count_failure, const char* verdict, text* reason, bool has_error, Datum error);

}  // namespace baton
