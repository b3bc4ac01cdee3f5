// Finding what comes due in the due-time buckets. A bucket's lanes stand for small parts of its window of time, so the clock
// says which of them to read; each is read once, page after page, when its time nears, and what is in it is kept in memory
// in the order of due times. The cost follows the messages that come due: never those that are due later, nor what old
// snapshots keep. Losing this memory costs one reading of the lanes.
//
// The mover has a finder for all queues. A claimer that comes up short while the mover is late has one for its queue.
#pragma once

#include "../core/wheel.hpp"
#include "shared_tables.hpp"

namespace baton {

struct DueMessage {
  TimestampTz at;  // when to move it: its due time, or when to look at its slot again
  int32 queue_id;
  BlockNumber block;
  uint8 table;
  uint8 index;
};

struct DueFinder;

// only_queue: 0 for all. Lives in `context`.
DueFinder* make_due_finder(MemoryContext context, int32 only_queue);
int32 due_finder_queue(const DueFinder* finder);
bool due_finder_has_read(const DueFinder* finder);

// Reads lanes whose time begins at or before `until`, the most recent first, `pages` pages at most. False: there is more to
// read. Needs a transaction.
bool read_due_lanes(DueFinder* finder, TimestampTz until, int pages);

// The next message to move by `until`; false if there is none. put_due gives one back, to be looked at again at `at`.
bool take_due(DueFinder* finder, TimestampTz until, DueMessage* out);
void put_due(DueFinder* finder, const DueMessage& message, TimestampTz at);
// When the finder next has something to do: the earliest message it knows, or the start of the next lane that is not empty.
TimestampTz finder_next(const DueFinder* finder);

// ---- moving them
constexpr int64 kDueAhead = 2 * USECS_PER_SEC;  // messages are moved to their queue this long before they are due
constexpr int kDueBatch = 500;

// Moves messages of one queue and table, due by now + kDueAhead, in the current transaction. What cannot be moved now is put
// back into the finder. Returns how many were moved.
// Messages of one page stand together.
int move_due_messages(DueFinder* finder, int32 queue_id, int table, DueMessage* messages, int count);

// Is there something due that the mover should have moved by now?
bool mover_is_late(TimestampTz now);
// A claimer's own help: moves up to `most` messages of its queue in the current transaction.
struct Queue;
int help_with_due(Queue* queue, int most);

}  // namespace baton
