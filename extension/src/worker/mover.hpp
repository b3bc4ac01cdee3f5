// Work of the mover and of retention, as steps that also CALL baton.maintain() can take.
#pragma once

#include "../pg/queue.hpp"
#include "worker_slot.hpp"

namespace baton {

// Ids of this database's queues, in the round's memory. False if the step failed.
bool list_queues(StepRunner run, int32** ids, int* count);

// Publishes what prepared transactions that have ended left behind; returns how many ranges are still open, of this
// database.
int settle_prepared(StepRunner run);

// Moves what comes due in the buckets, of one queue or (0) of all, until nothing more is due.
void move_all_due(StepRunner run, int32 queue_id);

// One queue: read the lanes that are due (or all), publish, set aside what must not be handed out any more.
bool sweep_one(StepRunner run, int32 queue_id, bool forced);

}  // namespace baton
