// Is a map drained, and if not, where is what is left? Read by whoever reclaims or empties segments.
#pragma once

#include "../core/keep.hpp"
#include "../pg/shmem.hpp"
#include "map.hpp"

namespace baton {

// ---- what is remembered between two looks; zero where nothing is. Kept in shared memory and as good as any hint.
DrainNote read_drain_note(RelNumber rel);
void write_drain_note(DrainNote note);

// ---- one look at a whole map
struct Drain {
  Keep unsettled;             // why a slot is not settled for good; kNothing: all are
  BlockNumber unsettled_at;   // if not
  uint64 newest_xid;          // of any settlement or rolled back enqueue
  TimestampTz last_deadline;  // of a lease that a token was told and that is answered here
  bool moved;                 // a message was moved away from here
  bool purged;                // rows were deleted by plain SQL, by transactions that the slots do not know
  bool rows_needed;           // ... and one of them is still visible to somebody
};

// Of a map that has changed under our eyes.
constexpr Drain kUnknownDrain{Keep::kUnsettled, InvalidBlockNumber, 0, 0, false, false, false};

// Needs a snapshot. look_first: a block to begin with, where unsettled work was met last. heap may be null: then rows that
// plain SQL has deleted are not asked whether anybody can see them.
Drain look_at_map(Relation heap, Relation map, BlockNumber look_first);

// What a settled slot says about when its segment may go. For readers of their own.
void note_drained_slot(const Slot& s, Drain* d);

}  // namespace baton
