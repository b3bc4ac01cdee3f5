// Claims in the long segments that are over: nobody claims from there, so the messages go back to their queues.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

constexpr int kMostReturned = 1024;  // queues that one look names

struct LongLook {
  int32 queues[kMostReturned];  // that have messages to be given back
  int count;
  TimestampTz next;             // when to look again, should nothing else happen
};

// Reads the maps of the long segments and says in shared memory when to look again. Needs a snapshot.
void look_at_long_segments(LongLook* look);

// Gives back what queue `id` has there that is not under a live claim, in the current transaction: ready messages and those
// whose lease is over to the queue's write segment, used-up ones to quarantine. If there is no such queue any more, their
// slots are settled. Never waits for a lock. Returns how many.
int return_long_claims(int32 id);

// Settles all slots that queue `id` has there, in the current transaction, which drops the queue.
void purge_long_claims(int32 id);

// For a claimer that came up short: is the look overdue (the mover is not at it), and if so, gives back the queue's own.
void help_with_long_claims(const Queue* queue, TimestampTz now);

}  // namespace baton
