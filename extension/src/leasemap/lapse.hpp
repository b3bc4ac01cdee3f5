// Ending claims whose lease is over, in place: for those who move messages and must not take a dead claim with them.
#pragma once

#include "resolve.hpp"

namespace baton {

// Of the slots of a copied and resolved page that `which` names: turns those that are still as they were copied and under a
// lease that is over into ready ones, with the failure counted, and the copy with them. The caller sees to it that it is not
// their last failure: that one belongs into the transaction that sets the message aside. Returns how many.
int end_lapsed(const Segment& segment, BlockNumber block, PageCopy* copy, const bool* which, TimestampTz now);

}  // namespace baton
