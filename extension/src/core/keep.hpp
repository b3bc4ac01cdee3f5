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
  kCount,
};

struct KeepEntry {
  const char* word;
  const char* meaning;
};

// By Keep. A word never changes: scripts compare it.
constexpr KeepEntry kKeeps[] = {
    {"nothing", "nothing: it is truncated at the next opportunity"},
    {"empty", "there is nothing in it"},
    {"newest", "messages are being put into it"},
    {"unsettled", "a message in it waits to be claimed"},
    {"claim", "a message in it is under a lease, or was until the lease ended"},
    {"open transaction", "a transaction that put in or settled a message has not ended"},
    {"deadline", "the lease of a settled message runs: its token must be answered"},
    {"replay window", "a retained message in it can be replayed"},
    {"retention", "a retained message in it is kept"},
    {"hold", "a queue with retained messages in it is on hold"},
    {"hold_rotation", "truncation is put off by hold_rotation"},
    {"interval", "another one was truncated a moment ago"},
    {"horizon", "an open snapshot may see what was in it"},
};
static_assert(sizeof(kKeeps) / sizeof(kKeeps[0]) == static_cast<int>(Keep::kCount));

constexpr const KeepEntry& keep_entry(Keep k) { return kKeeps[static_cast<int>(k)]; }

struct SegmentFacts {
  bool newest;
  bool rotation_held;
  bool too_soon;           // since the last truncation of the queue
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
  if (f.too_soon) return Keep::kInterval;
  return Keep::kNothing;
}

}  // namespace baton
