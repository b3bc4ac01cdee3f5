// What keeps a table that holds messages from being truncated. One decision for the worker that truncates and for the
// view that shows it, so that what is shown is what is done. Plain arithmetic on facts that the caller has collected.
#pragma once

#include <cstdint>

namespace baton {

enum class Keep : uint8_t {
  kNothing,          // it may be truncated
  kEmpty,            // there is nothing in it
  kNewest,           // messages are being put into it
  kUnsettled,        // a message waits to be claimed
  kClaim,            // a message is held under a lease, or was until its lease ended
  kOpenTransaction,  // a transaction that enqueued, settled or retained has not ended
  kDeadline,         // the lease of a settled token runs: it must be told "already settled"
  kReplayWindow,     // a retained message can be replayed for certain until a time that has not come
  kRetention,        // ... or is kept beyond that
  kHold,             // a queue with retained messages in it is on hold
  kRotationHeld,     // hold_rotation
  kInterval,         // another truncation was a moment ago
  kHorizon,          // a snapshot may see its rows
  kSmall,            // it is not worth a truncation yet
  kCount,
};

// By Keep. A word never changes: scripts compare it.
constexpr const char* kKeepWords[] = {
    "nothing", "empty",         "newest",    "unsettled", "claim",         "open transaction", "deadline",
    "replay window", "retention", "hold",      "hold_rotation", "interval",         "horizon",
    "small",
};
static_assert(sizeof(kKeepWords) / sizeof(kKeepWords[0]) == static_cast<int>(Keep::kCount));

constexpr const char* keep_word(Keep k) { return kKeepWords[static_cast<int>(k)]; }

struct SegmentFacts {
  bool newest;
  bool rotation_held;
  bool too_soon;           // since the last truncation of the queue
  bool too_small;          // and drained only lately
  Keep unsettled;          // why the first slot that is not settled for good is not; kNothing: all are
  bool deadline_ahead;     // of a lease that a token was told
  bool rows_needed;        // a row that plain SQL deleted is visible to somebody
  uint64_t newest_xid;     // of any settlement, rolled back enqueue or earlier guard
  uint64_t horizon;        // no snapshot sees a transaction before it as running
  bool ring_full;          // there is no room in the ring ...
  bool moved;              // ... but what was moved from here is elsewhere under the same id
  int64_t drained_us;      // since it was seen to be drained
  int64_t grace_us;
};

// Is the horizon passed? If not, may the segment go all the same, with a guard? Nobody must be left who could still see a
// row, unless the ring is full; and what was moved an old snapshot would then see nowhere.
constexpr bool horizon_passed(const SegmentFacts& f) { return f.newest_xid < f.horizon && !f.rows_needed; }
constexpr bool may_force(const SegmentFacts& f) { return f.ring_full && !f.moved && f.drained_us >= f.grace_us; }

constexpr Keep keep_segment(const SegmentFacts& f) {
  if (f.newest) return Keep::kNewest;
  if (f.unsettled != Keep::kNothing) return f.unsettled;
  if (f.deadline_ahead) return Keep::kDeadline;
  if (f.rotation_held) return Keep::kRotationHeld;
  if (!horizon_passed(f) && !may_force(f)) return Keep::kHorizon;
  if (f.too_small) return Keep::kSmall;
  if (f.too_soon) return Keep::kInterval;
  return Keep::kNothing;
}

struct RetainedFacts {
  bool empty;
  Keep row;             // why the first row found that may not go may not; kNothing: all may
  bool rotation_held;
  bool too_soon;        // since the last truncation of such a table
  uint64_t passed_xid;  // assigned when every row was found to be past its time; 0: not found yet
  uint64_t horizon;
  int64_t passed_us;    // since then
  int64_t grace_us;
};

// A row past its time is owed to nobody. A snapshot from before that may still expect it, and is waited for, up to the
// grace; one that is older gets an error from the guard.
constexpr bool horizon_passed(const RetainedFacts& f) { return f.passed_xid < f.horizon; }

constexpr Keep keep_retained(const RetainedFacts& f) {
  if (f.empty) return Keep::kEmpty;
  if (f.row != Keep::kNothing) return f.row;
  if (f.rotation_held) return Keep::kRotationHeld;
  if (!horizon_passed(f) && f.passed_us < f.grace_us) return Keep::kHorizon;
  if (f.too_soon) return Keep::kInterval;
  return Keep::kNothing;
}

}  // namespace baton
