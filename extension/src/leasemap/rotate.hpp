// Rotation: reclaiming the space of drained segments by truncation.
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

// Truncates segments of the queue's ring that nobody can miss, in the current transaction; at most one per
// pg_baton.rotate_min_interval. Never waits for a lock. Needs an active snapshot. Returns how many.
int rotate_queue(Queue* queue);

}  // namespace baton
