// The audit: one row in baton_data.audit for every call that destroys, takes away or overrules, in the transaction of
// the call. A verb that acts at once on one message writes its row first: an error in writing leaves everything as it was;
// one that passes over a whole queue writes when it knows how much it did. A rollback after the act takes the row with it,
// which is why such verbs say to the server's log what they did, too.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

struct AuditEntry {
  const char* action;   // the verb
  const Queue* queue;   // nullptr: concerns no queue, or all of them
  int64 affected;       // messages, segments, queues: what the action counts; -1: nothing to count
  const text* reason;   // the caller's, or nullptr
  const char* details;  // a JSON object as text, or nullptr
};

// Call with the caller's identity, not between become_extension_owner and become_caller: it is the caller's that is
// written down (session user and current role). Does nothing under SQL of 0.1.0, which has no such table.
void write_audit(const AuditEntry& entry);

}  // namespace baton
