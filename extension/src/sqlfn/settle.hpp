// Settlement inside the server: used by the verbs and by the mover.
#pragma once

#include "../leasemap/map.hpp"
#include "../pg/queue.hpp"

namespace baton {

// Sets aside messages whose attempts are used up, as far as the lanes' pages show any, in the current transaction (the
// caller's: the mover gives it one of its own). Returns how many. (Messages that expire: worker/expire.cpp.) one_by_one: in a
// subtransaction each; those that fail are left as they are.
int64 settle_exhausted(Queue* queue, bool one_by_one);

// How long after a failure what could not be set aside is tried again.
constexpr int64 kAsideAgain = 5 * USECS_PER_SEC;

// Does a message whose expiry has passed go into quarantine? While the queue is held, nothing is dropped.
inline bool keeps_expired(const Queue* queue) { return queue->keep_expired || queue->held; }

// The fate of a slot that nobody holds and that must not be handed out again: quarantined (attempts or claims used up),
// expired (dropped, or quarantined as well), or purged (its row was deleted by plain SQL). Marks the slot as settling in the current transaction and moves
// or deletes the row. False if somebody else has changed the slot meanwhile.
bool set_aside(const Queue* queue, const Segment& segment, int segment_no, const Slot& slot, const Place& place, SettleKind kind, const char* cause);

// Deletes the row of a slot that the current transaction has settled. A row that plain SQL has deleted meanwhile is fine.
void delete_row(Relation heap, const Slot& slot);

}  // namespace baton
