// Reclaiming retained tables: each is truncated as a whole when nothing in it is kept any more.
#pragma once

#include "../core/keep.hpp"
#include "tables.hpp"

namespace baton {

// Truncates at most one retained table that nothing keeps, in the current transaction. Never waits for a lock. Needs an
// active snapshot. Returns how many. Does nothing under SQL of before 0.2.0.
int reclaim_retained();

// Lets the index of one table sum up the pages that the table has got since the last time, where that is worth it and the
// locks are to be had; until then readers read them. Keeps its locks to the end of the transaction. False: there was none.
bool sum_up_retained();

struct RetainedKeep {
  Keep keep;
  int32 queue_id;     // kRetention, kReplayWindow, kHold: of the message that was met
  TimestampTz until;  // ... and when it may go; kRotationHeld: when the hold ends
};

// What keeps a retained table, as reclaim_retained would decide now.
RetainedKeep retained_kept_by(int table);

}  // namespace baton
