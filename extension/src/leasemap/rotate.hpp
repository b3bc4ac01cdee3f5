// Rotation: reclaiming the space of drained segments by truncation.
#pragma once

#include "../core/keep.hpp"
#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

// Truncates segments of the queue's ring that nobody can miss, in the current transaction; at most one per
// pg_baton.rotate_min_interval. Never waits for a lock. Needs an active snapshot. Returns how many.
// *left, if given: work is left in a segment that is not written any more (survivors.hpp may be asked).
int rotate_queue(Queue* queue, bool* left = nullptr);

// What keeps segment n of the queue, as rotate_queue would decide now; what keeps a shared table, as rotate_shared_tables
// would. *until: the end of a lease or of a hold; 0: no time.
Keep segment_kept_by(Queue* queue, int n, TimestampTz* until);
Keep shared_kept_by(Oid heap, TimestampTz* until);

// The same for one of the tables that all queues share (shared_tables.hpp), in the current transaction.
int rotate_shared_tables();

}  // namespace baton
