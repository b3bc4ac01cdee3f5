// Claiming: reserve, then look, then the fence. Behind claim, take, settle_and_claim and the look of wait.
#pragma once

#include "../leasemap/row.hpp"
#include "../pg/queue.hpp"

namespace baton {

struct ClaimRequest {
  Queue* queue;
  uint32 worker;
  int max_items;
  int64 lease_us;
  int64 start_within_us;  // 0: the lease does not depend on start
  bool session_bound;     // reserve_session_claims has been called
  int64 max_bytes;  // 0: no limit
  const ArrayType* classes;  // nullptr: any
  bool take;   // settle at once, in the caller's transaction
  bool probe;  // claim nothing, only say whether something is there
};

struct Claimed {
  Slot slot;  // as claimed
  Place place;
  int segment;
  uint64 epoch;
  HeapTuple row;
};

struct ClaimResult {
  Claimed* items;
  int count;
  bool found;        // probe: something is claimable
  XLogRecPtr lsn;    // of the last change
};

// Claims up to max_items messages. Every way out gives back what was reserved and not claimed. The caller flushes.
void claim_messages(const ClaimRequest& request, ClaimResult* result);

// Would a claim find anything now, by the active snapshot? Claims nothing.
bool something_to_claim(Queue* queue);

}  // namespace baton
