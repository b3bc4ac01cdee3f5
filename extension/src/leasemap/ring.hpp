// The ring of a queue's segments: which one is written, and moving on to the next. (Reclaiming them is rotate.hpp.)
#pragma once

#include "../pg/queue.hpp"
#include "map.hpp"

namespace baton {

// The segment that is written now, opened with a lock to the end of the transaction.
Segment open_write_segment(Queue* queue, int* number);

// Moves writing on from the segment `current` (number in the ring) to the next empty one, if it is still the newest.
// Waits for nobody: when another session is at it, or no segment is empty, it stays as it is and false is returned.
bool move_on(Queue* queue, const Segment& current, int number);

// Moves on early from a segment that is mostly settled, so that a queue with little in it does not keep a whole
// segment's worth of settled messages. For the retention worker.
bool move_on_early(Queue* queue);

// Bytes of the table (without TOAST) in the main fork.
int64 segment_size(const Segment& segment);

// ---- looking at the ring without waiting for any lock

struct RingMember {
  bool candidate;  // open, and not the newest: what rotation may think of
  Oid heap;
  uint64 open_seq;  // 0: empty
  uint64 epoch;
  uint64 guard_xid;
  RelNumber rel;
};

struct Ring {
  RingMember members[kMaxSegments];
  int count;
  int newest;      // the one that is written; -1: none was opened yet
  bool any_empty;
  bool full;       // the newest is over its size and no other is empty
};

// False when a segment cannot be looked at now: then it is not known which one is the newest.
bool look_at_ring(const Queue& queue, Ring* ring);
// Its oldest candidate, which is none any more; nullptr when there is none left.
RingMember* next_candidate(Ring* ring);

// Opens a segment unless somebody has locked it against that. Close it with the same lock, or keep it with NoLock.
bool try_open_segment(Oid heap, LOCKMODE lock, Segment* s);

}  // namespace baton
