// The fence on the settling side: from tokens to outcomes. Behind ack, release, quarantine, settle, extend, start and
// hand_back, single and batch.
#pragma once

#include "../core/token.hpp"
#include "../leasemap/map.hpp"
#include "../pg/errors.hpp"
#include "../pg/queue.hpp"

namespace baton {

enum class Verdict : uint8 { kAck, kRelease, kReleaseUnfailed, kQuarantine, kHandBack, kExtend, kStart };

// One token and what is asked for it. Inputs up to `error`; the rest is filled in.
struct Settlement {
  int ord;  // from 1
  text* token_text;
  Verdict verdict;
  bool has_delay;
  int64 delay_us;  // release
  bool has_lease;
  int64 lease_us;  // extend
  text* reason;
  bool has_error;
  Datum error;

  Outcome outcome;
  bool parsed;
  Token token;
  Queue* queue;
  Place place;         // of its slot: the token's, or where the claim was moved to
  bool elsewhere;      // the claim is not where the token says: it may have been moved
  bool moving;         // ... or is on its way
  bool in_long;        // found in a long segment
  Slot slot;           // at the fence: before the change when refused, after it when done
  int64 now;           // the clock at the fence
  TimestampTz due;     // release
  bool deferred;       // a release with a long delay: the message goes to a due-time bucket
  bool exhausted;      // a release that was the last failure: quarantined
  bool expiry_known;
  TimestampTz expires_at;  // if known; kNever: it does not expire
  bool must_flush;     // extend, and a start that made the lease longer: on disk before it is answered
  XLogRecPtr lsn;
};

// Settles all of them, in one global order (queue, segment, block, slot), each under its page's lock, then moves or
// deletes rows. may_wait: a settlement in progress of the same message is waited for, up to pg_baton.settle_timeout
// (single forms). Never raises for a token's own sake: the outcome says what happened.
void settle_tokens(Settlement* items, int count, bool may_wait);

// Raises if any outcome is not a success: the SQLSTATE of the first, all of them in DETAIL.
void raise_if_refused(const Settlement* items, int count, const char* verb);

}  // namespace baton
