// What an open transaction has done to a queue as a whole, and who has to learn of it when it ends.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

void register_queue_notes();

// fence: tokens of this incarnation are refused from now on, also by verbs that have read the queue's definition already
// (protocol rule 23). A rollback takes it back.
void note_fenced(int32 queue_id, int32 incarnation);

// The queue hands out messages again from the commit on: all who wait for it look, each for itself, since nobody has counted
// what there is.
void note_resumed(int32 queue_id);

}  // namespace baton
