// The mover's step for scheduled messages: what comes due in the due-time buckets goes to the queues, in bounded batches.
#pragma once

#include "../leasemap/due.hpp"
#include "worker_slot.hpp"

namespace baton {

// One round: reads lanes whose time nears, moves messages that come due, batch by batch, for at most `budget` microseconds.
// *more: there was more to do. Returns when the next one is due to be moved (kNever: nothing known).
TimestampTz due_round(StepRunner run, DueFinder* finder, int64 budget, bool* more);

}  // namespace baton
