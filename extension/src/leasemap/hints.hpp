// Hints in shared memory: where unclaimed work begins in each lane, what to look at again, when to look. Losing all of
// it costs one sweep and some latency, never a message. Entries are keyed by relation file number, so that a map that
// was rebuilt or truncated starts afresh by itself.
//
// Every field of LaneHint is protected by its spinlock. Nothing under it can fail or takes longer than a few dozen
// instructions. A pointer to an entry may be kept by a backend, but the entry can be given to another lane at any time:
// each function below compares the key under the lock and says false (or does nothing) when it has changed.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

struct LaneKey {
  Oid database;
  RelNumber rel;
  uint32 lane;
};
inline bool operator==(const LaneKey& a, const LaneKey& b) {
  return a.database == b.database && a.rel == b.rel && a.lane == b.lane;
}

// Slots of one page to look at.
struct Range {
  BlockNumber block;
  uint8 first;
  uint8 count;
  uint16 flags;
  uint64 nonce;  // with kVoid: of the claim that was rolled back
};
constexpr uint16 kRangeVoid = 1;  // a claim that was rolled back: counts as a failure
constexpr uint16 kRangeFree = 2;  // ... inside the verb itself: does not count

struct TimedRange {
  TimestampTz at;
  Range range;
};

constexpr int kRevisits = 128;
constexpr int kTimed = 128;
constexpr TimestampTz kNever = PG_INT64_MAX;

struct LaneHint {
  slock_t lock;
  bool live;
  bool loaded;  // frontier and appended are known; never on a standby, where replay moves on without telling anybody
  LaneKey key;
  TimestampTz last_used;  // for eviction; approximate

  uint64 epoch;     // of the map
  uint64 open_seq;  // of the map, as far as known
  uint32 map_lanes;  // default lane's entry only: lanes of the map, as far as known
  BlockNumber tail_block;      // last page of the lane, or a page before it
  BlockNumber frontier_block;  // page the frontier is on; InvalidBlockNumber while the lane has no page
  uint32 frontier_ordinal;     // its number in the lane
  uint16 frontier_index;       // first slot on it that was never offered; kSlotsPerPage: go on to the next page
  uint64 appended;             // slots of the lane so far

  BlockNumber low_block;  // no unsettled slot lies before this page (a sweep starts here)
  uint32 low_ordinal;

  bool expiring;                // messages that expire have been appended since the mover looked for them
  BlockNumber expiring_block;   // ... from this page on; InvalidBlockNumber: anywhere
  uint32 expiring_ordinal;

  bool sweep_wanted;     // hints were lost: sweep from the bottom as soon as possible
  TimestampTz sweep_at;  // the earliest deadline or due time that no list entry stands for; kNever = none
  BlockNumber resume_block;  // where the last sweep found the list full; InvalidBlockNumber = it ended
  TimestampTz swept_at;

  uint16 revisit_head;
  uint16 revisit_count;
  uint16 timed_count;
  Range revisits[kRevisits];    // first in, first out
  TimedRange timed[kTimed];     // binary heap, earliest first
};

// ---- table of entries (shared memory: pg/shmem)
LaneHint* find_lane_hint(const LaneKey& key);            // nullptr if not there; safe in commit and abort callbacks
LaneHint* find_or_make_lane_hint(const LaneKey& key);    // not loaded when new

// ---- loading, once per entry
struct LaneLoad {
  uint64 epoch;
  uint64 open_seq;
  uint32 map_lanes;
  BlockNumber first_block;
  BlockNumber last_block;
  uint64 appended;
  bool lasting;  // read after recovery
};
void load_lane_hint(LaneHint* h, const LaneKey& key, const LaneLoad& load);

// Fields of a loaded entry, read under its lock. False when it is no longer this lane's.
struct LaneView {
  uint64 epoch;
  uint64 open_seq;
  BlockNumber tail_block;
  BlockNumber frontier_block;
  uint64 frontier;
  BlockNumber low_block;
  uint64 low;       // slots before it are settled
  uint64 appended;
  uint32 map_lanes;
  TimestampTz swept_at;
};
bool view_lane_hint(LaneHint* h, const LaneKey& key, LaneView* out);

// ---- appending
void hint_appended(LaneHint* h, const LaneKey& key, BlockNumber tail_block, BlockNumber page_block, uint32 page_ordinal, uint16 page_count,
                   bool expires);
void hint_lane_count(LaneHint* h, const LaneKey& key, uint32 lanes);
void hint_opened(LaneHint* h, const LaneKey& key, uint64 open_seq);

// ---- messages that expire
// Asks the mover to look through the whole lane for them.
void want_expiry_look(LaneHint* h, const LaneKey& key);
// True if there is something to look at, from page *block on (InvalidBlockNumber: from the lane's first with unsettled
// work). Clears the request first, then the caller looks: what is appended in between asks again.
bool take_expiry_look(LaneHint* h, const LaneKey& key, BlockNumber* block);

// ---- finding work
enum class ReserveResult { kNone, kRange, kNextPage, kLost };
// Serves, in this order: timed ranges that are due, revisits, the frontier. kNextPage: the frontier stands at the end of
// *block; read that page's link and call advance_frontier. kLost: the entry is no longer this lane's.
ReserveResult reserve_range(LaneHint* h, const LaneKey& key, TimestampTz now, int want, bool frontier_only, Range* out, BlockNumber* block);
void advance_frontier(LaneHint* h, const LaneKey& key, BlockNumber from, BlockNumber to);
// Ranges that wait to be looked at again now. A claimer serves no more than that before it turns to the frontier, so that
// ranges it can do nothing with (another class, too large) do not keep it from new work.
int waiting_ranges(LaneHint* h, const LaneKey& key, TimestampTz now);
// True if reserve_range would find something, or a sweep is wanted. Also says when to look again (kNever if nothing is known).
bool lane_has_work(LaneHint* h, const LaneKey& key, TimestampTz now, TimestampTz* next_at);

// ---- giving back, publishing; also from commit and abort callbacks (no allocation, no error)
void publish_range(LaneHint* h, const LaneKey& key, const Range& range);
void publish_timed(LaneHint* h, const LaneKey& key, TimestampTz at, const Range& range);
void publish_by_key(const LaneKey& key, const Range& range, TimestampTz at);  // at = 0: now. Nothing to do if no entry
// Of a range that was just committed: publishes what the frontier has passed, or (first) all of it.
void publish_committed(const LaneKey& key, const Range& range, uint32 page_ordinal, TimestampTz due, bool first);
void want_sweep(const LaneKey& key, TimestampTz at);  // at = 0: as soon as possible

// ---- sweeping
// Is it time? Caller holds the entry's lock. A sweep that found the revisit list full goes on when half of it is free.
inline bool sweep_is_due(const LaneHint* h, TimestampTz now) {
  if (!h->loaded) return false;
  if (h->resume_block != InvalidBlockNumber) return h->revisit_count < kRevisits / 2;
  return h->sweep_wanted || h->sweep_at <= now;
}

struct SweepPlan {
  bool go;
  bool from_bottom;  // false: goes on where the last one found the list full
  BlockNumber start;
  uint64 end;  // the frontier: slots from here on were never offered and need no sweep
};
// Clears the flag first, then the caller sweeps: a request that arrives in between is kept. A sweep that goes on in the
// middle clears nothing: requests that came since are for a sweep from the bottom.
SweepPlan begin_sweep(LaneHint* h, const LaneKey& key, TimestampTz now, bool force);
int room_for_revisits(LaneHint* h, const LaneKey& key);
void end_sweep(LaneHint* h, const LaneKey& key, TimestampTz now, BlockNumber resume, BlockNumber low_block, uint32 low_ordinal,
               TimestampTz next_at);

}  // namespace baton
