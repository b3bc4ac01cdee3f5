// Ending a claim against its holder, at once: its session has ended, or an operator takes the message away. The token is
// refused from then on.
#pragma once

#include "map.hpp"

namespace baton {

struct EndTerms {
  SettleKind how;      // kDisconnected, kRevoked
  bool failed;         // counts a failure
  int64 delay;         // of the message, in microseconds; below 0: the backoff of a failure, none without one
  int64 backoff;       // of the queue
  int64 max_backoff;
  int max_attempts;
  int32 queue_id;
};

enum class EndResult { kEnded, kSettling, kNotClaimed };

// Ends the live claim at a place, that of this nonce (0: whoever's it is). A settlement in progress is left alone (protocol
// rule 17). The last failure lapses the claim instead of counting, and whoever meets the slot next sets it aside. Publishes
// the message and wakes a waiter. *ended: the slot as it was, with outcomes applied. Needs a snapshot.
EndResult end_claim(const Segment& segment, const Place& place, uint64 nonce, const EndTerms& terms, Slot* ended);

}  // namespace baton
