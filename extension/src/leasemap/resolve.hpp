// Copies of slots with their transactions' outcomes worked out. Status look-ups may do I/O and may raise, so they never
// happen under a page lock: copy the page, release it, look up, and compare again before anything is written.
#pragma once

#include "map.hpp"

namespace baton {

struct PageCopy {
  Slot slots[kSlotsPerPage];      // as on the page
  Slot resolved[kSlotsPerPage];   // with known outcomes applied
  XidStatus status[kSlotsPerPage];
  bool changed[kSlotsPerPage];    // resolved differs from slots in its state
  int first;
  int count;
  uint32 lane;
  uint32 ordinal;
  BlockNumber next;
};

// Copies slots [first, first + count) of a block; count is cut to what is there. False if it is not a map page.
bool copy_slots(Relation map, BlockNumber block, int first, int count, BufferAccessStrategy strategy, PageCopy* out);
// Works out the outcomes. Needs a held snapshot. heap may be null: then transactions older than the commit log stay kTooOld.
void resolve_copy(Relation heap, PageCopy* copy);
// Writes changed outcomes to the page where the slot is still as it was copied. One WAL record at most. Returns how many.
int write_resolved(Relation map, BlockNumber block, const PageCopy* copy);

// Is the row of this slot there, undeleted (or deleted by a transaction that rolled back)?
bool row_is_live(Relation heap, const Slot& slot);

// A snapshot for status look-ups where the caller has none. Returns true if one was pushed.
bool push_snapshot_if_none();

}  // namespace baton
