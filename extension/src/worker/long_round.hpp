// The mover's step for the long segments: messages there whose claims are over go back to their queues.
#pragma once

#include "worker_slot.hpp"

namespace baton {

// One round, if it is time (or forced); only_queue: 0 for all. Each queue has a transaction of its own. Returns when to look
// again.
TimestampTz long_round(StepRunner run, int32 only_queue, bool forced);

}  // namespace baton
