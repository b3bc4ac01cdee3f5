// Finding one message by its id. A slot's place is not derived from its id, but nearly: ids come from one sequence, and
// slots are appended in the order of time. So each segment is searched by bisection first, with a look at the pages around;
// what was moved and so stands out of order, or cannot be found, costs one pass over the queue's maps. Messages in tables
// that all queues share are found by their rows' primary key.
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

struct FoundMessage {
  Oid heap;   // the table it is in
  Place place;
  Slot slot;  // with outcomes applied, as it was looked at
  XidStatus status;
};

// Looks for an unsettled slot of the message; failing that, any. False if there is none. Needs a snapshot. Locks are given
// back: who changes the slot opens the table again and compares.
bool find_message(const Queue* queue, int64 id, FoundMessage* out);

}  // namespace baton
