// Looking at a message row on behalf of a claimer: is it committed, visible to the caller, and nobody's?
#pragma once

#include "row.hpp"

namespace baton {

enum class RowLook {
  kFree,       // claimable as far as the row goes
  kInvisible,  // committed, but not in the caller's snapshot: it could not be joined to its business row
  kLocked,     // an open transaction has locked it or is deleting it
  kMissing,    // deleted by plain SQL, or not this message's row any more
};

// On kFree *copy is a palloc'd tuple. Holds no lock when it returns.
RowLook look_at_row(Relation heap, const Slot& slot, Snapshot snapshot, HeapTuple* copy);

}  // namespace baton
