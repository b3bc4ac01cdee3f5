// Survivors: what is left in a segment of which most is settled. Moved away, so that the segment can be reclaimed.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

// One batch out of one segment of the queue, in the current transaction, if it is needed and worth it. Never waits for a
// lock. force: counts what is left although that was done a moment ago. Returns how many messages were moved.
int move_survivors(Queue* queue, bool force);

// The same for the long segments: writing goes on in the other one, and what is left in the old one follows.
int turn_long_segments(bool force);

}  // namespace baton
