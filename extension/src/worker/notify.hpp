// NOTIFY for queues that ask for it (notify => true): for drivers that cannot block a session in baton.wait.
#pragma once

#include "worker_slot.hpp"

namespace baton {

// Which queues ask for it, from their definitions; those that begin to are notified once. Called in each full round.
void find_notified_queues(StepRunner run);

// Sends what is due: for each queue at most one NOTIFY in 50 ms. Returns when to come again, kNever if nothing is noted.
// *noted: something was; *look: something falls due at a time that the last round may not have known.
TimestampTz send_notifications(StepRunner run, bool* noted, bool* look);

// A round has found work of this queue that fell due, or that has been waiting for long.
void note_fallen_due(int32 queue_id);
void note_waiting_work(int32 queue_id);

}  // namespace baton
