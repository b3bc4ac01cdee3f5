// Work that may wait: rotation, forced sweeps, statistics.
#pragma once

#include "worker_slot.hpp"

namespace baton {

void retention_round(StepRunner run);
// Parts of it, for CALL baton.maintain().
// *left: work is left in a segment that is not written any more.
bool rotate_one(StepRunner run, int32 queue_id, bool* left);
// Reclaims retained tables and keeps their indexes up to date.
void keep_retained_tables(StepRunner run);
// Moves what little is left in old segments of a queue, a batch in each step. forced: although that was looked at just now.
bool move_one(StepRunner run, int32 queue_id, bool forced);
// What all queues share.
void keep_shared_tables(StepRunner run, bool forced);

}  // namespace baton
