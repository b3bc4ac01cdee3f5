// Moving messages to another place: from a due-time bucket to the queue, from an old segment forward, with or without the
// claim on them. In one transaction the slot is marked as being moved, the row deleted, and row and slot written anew, so
// that a message is in exactly one place whatever dies. Id, generation, failures, envelope and payload go with it.
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

// kQueue: the write segment, or a bucket if it is due later. kLong: the long segment, with the claim on it.
enum class MoveTarget { kQueue, kLong };

struct MoveItem {
  Slot slot;  // a resolved copy, as it was looked at
  Place place;
  TimestampTz due;  // when the message is due at its new place; 0: at once
};

// Moves those that are still as they were looked at, whose row is there and locked by nobody. Returns how many; moved[i], if
// given, says which. Order is kept. Items of one page stand together. The lock on `from` is kept by the caller to the end of
// the transaction. Raises 55P03 if plain SQL locks a row in the middle of it.
int move_messages(Queue* queue, const Segment& from, MoveItem* items, int count, MoveTarget target, bool* moved = nullptr);

// The second half for a slot that the current transaction has settled as kDeferred already: its row goes to a bucket.
void defer_row(Queue* queue, const Segment& from, const Slot& slot, int failures, TimestampTz due);

// The long segment that claims move to now.
int long_table_to_write();

// Marks slots whose rows are gone (their queue was dropped) as purged, in the current transaction.
void purge_slots(const Segment& from, const MoveItem* items, int count);

}  // namespace baton
