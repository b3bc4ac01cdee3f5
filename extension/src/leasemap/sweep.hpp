// Sweeping: reading map pages below the frontier to find again what hints lost, and to write down outcomes that nobody
// has yet. Cost: one pass over the lane's pages from the first with unsettled work to the frontier.
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

struct SweepResult {
  int64 slots;      // read
  int64 published;  // claimable slots put on the revisit list
  int64 exhausted;  // claimable, but their attempts are used up: settle_exhausted will set them aside
  TimestampTz next_at;
};

// One lane of an opened segment. Takes an active snapshot of its own if there is none. force: even when not due.
void sweep_lane(const Queue* queue, const Segment& segment, uint32 lane, bool force, SweepResult* result);
// Every lane of every segment; wakes waiters for what was published. Returns slots read; *exhausted, if given: messages
// met that settle_exhausted should set aside.
int64 sweep_queue(Queue* queue, bool force, int64* exhausted = nullptr);
// When the queue's lanes next want to be looked at; kNever if nothing is known.
TimestampTz queue_next_at(Queue* queue, bool* has_work);

// VACUUM: writes down the outcome of every transaction named on the map.
void resolve_old_xids(Relation map, BufferAccessStrategy strategy);

}  // namespace baton
