// Message expiry as a step of the mover, and by hand.
#pragma once

#include "../leasemap/expiry.hpp"
#include "worker_slot.hpp"

namespace baton {

// Reads what has been asked for and settles what has expired, for a limited time. True if there is more to do at once.
bool expire_round(StepRunner run, ExpiryBook* book);

// Maps of queues that are not among these (sorted) any more need no memory.
void forget_expiry_of_dropped(ExpiryBook* book, const int32* ids, int count);

// Removes quarantined messages whose expiry has passed.
void expire_quarantined(StepRunner run);

// One queue, all of it: what has expired by now is settled when it returns.
void expire_one(StepRunner run, int32 queue_id);

}  // namespace baton
