// Outcome of a transaction named in a slot. The one resolver for all.
#pragma once

#include "../core/slot.hpp"
#include "postgres.hpp"

namespace baton {

// Asks "in progress?" first and "committed?" second: the other way round, a transaction that ends in between reads as
// aborted. kTooOld: the commit log no longer answers for it, the row has to. Call with a snapshot held (pg_subtrans must
// reach back far enough) and without any page lock: it may do I/O and may raise.
XidStatus xid_status(uint64 full_xid);

// Full id of the current (sub)transaction; assigns one if needed.
uint64 current_full_xid();
uint64 full_xid_of(TransactionId xid);

}  // namespace baton
