// The ring of a queue's segments: which one is written, and moving on to the next. (Reclaiming them is rotate.hpp.)
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

// The segment that is written now, opened with a lock to the end of the transaction.
Segment open_write_segment(Queue* queue, int* number);

// Moves writing on from the segment `current` (number in the ring) to the next empty one, if it is still the newest.
// Waits for nobody: when another session is at it, or no segment is empty, it stays as it is and false is returned.
bool move_on(Queue* queue, const Segment& current, int number);

// Moves on early from a segment that is mostly settled, so that a queue with little in it does not keep a whole
// segment's worth of settled messages. For the retention worker.
bool move_on_early(Queue* queue);

// Bytes of the table (without TOAST) in the main fork.
int64 segment_size(const Segment& segment);

}  // namespace baton
