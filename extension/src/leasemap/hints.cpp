// See hints.hpp. The spinlock of an entry is held for a few dozen instructions, never across a call that can fail.
#include "hints.hpp"

#include "../pg/shmem.hpp"
#include "page.hpp"

namespace baton {
namespace {

constexpr int kProbes = 16;

uint32 lane_start(const LaneKey& k) {
  uint32 h = hash_combine(murmurhash32(k.database), murmurhash32(k.rel));
  return hash_combine(h, murmurhash32(k.lane)) % static_cast<uint32>(shared->lane_capacity);
}

LaneHint* probe(const LaneKey& key) {
  uint32 start = lane_start(key);
  for (int i = 0; i < kProbes; i++) {
    LaneHint* h = &shared->lanes[(start + i) % shared->lane_capacity];
    if (h->live && h->key == key) return h;
  }
  return nullptr;
}

// Scoped hold of an entry that is (still) the lane's. Trivially destructible on purpose: unlock() is called by hand.
struct Held {
  LaneHint* h;
  bool ok;
};

Held hold(LaneHint* h, const LaneKey& key) {
  SpinLockAcquire(&h->lock);
  if (h->live && h->key == key) return Held{h, true};
  SpinLockRelease(&h->lock);
  return Held{h, false};
}

uint64 position(uint32 ordinal, uint32 index) { return static_cast<uint64>(ordinal) * kSlotsPerPage + index; }

void push_revisit(LaneHint* h, const Range& r) {
  // Neighbours that were put back one by one become one range again.
  if (h->revisit_count > 0 && !(r.flags & kRangeVoid)) {
    Range& last = h->revisits[(h->revisit_head + h->revisit_count - 1) % kRevisits];
    if (last.block == r.block && last.flags == r.flags && last.first + last.count == r.first) {
      last.count = static_cast<uint8>(last.count + r.count);
      return;
    }
  }
  if (h->revisit_count == kRevisits) {
    h->sweep_wanted = true;
    return;
  }
  h->revisits[(h->revisit_head + h->revisit_count) % kRevisits] = r;
  h->revisit_count++;
}

void push_timed(LaneHint* h, TimestampTz at, const Range& r) {
  if (h->timed_count == kTimed) {
    // The list is full: a sweep at that time stands for it.
    if (at < h->sweep_at) h->sweep_at = at;
    return;
  }
  int i = h->timed_count++;
  while (i > 0) {
    int parent = (i - 1) / 2;
    if (h->timed[parent].at <= at) break;
    h->timed[i] = h->timed[parent];
    i = parent;
  }
  h->timed[i] = TimedRange{at, r};
}

Range pop_timed(LaneHint* h) {
  Range top = h->timed[0].range;
  TimedRange last = h->timed[--h->timed_count];
  int n = h->timed_count;
  int i = 0;
  for (;;) {
    int child = 2 * i + 1;
    if (child >= n) break;
    if (child + 1 < n && h->timed[child + 1].at < h->timed[child].at) child++;
    if (last.at <= h->timed[child].at) break;
    h->timed[i] = h->timed[child];
    i = child;
  }
  if (n > 0) h->timed[i] = last;
  return top;
}

// Times that have come, in the heap from i down: no child comes before its parent.
int due_below(const LaneHint* h, int i, TimestampTz now) {
  if (i >= h->timed_count || h->timed[i].at > now) return 0;
  return 1 + due_below(h, 2 * i + 1, now) + due_below(h, 2 * i + 2, now);
}

// Caller gets want slots at most; the rest of a longer range stays at the head of the list.
Range take_front(LaneHint* h, int want) {
  Range& front = h->revisits[h->revisit_head];
  Range out = front;
  if (front.count > want) {
    out.count = static_cast<uint8>(want);
    front.first = static_cast<uint8>(front.first + want);
    front.count = static_cast<uint8>(front.count - want);
  } else {
    h->revisit_head = static_cast<uint16>((h->revisit_head + 1) % kRevisits);
    h->revisit_count--;
  }
  return out;
}

}  // namespace

LaneHint* find_lane_hint(const LaneKey& key) {
  LWLockAcquire(shared->lane_lock, LW_SHARED);
  LaneHint* h = probe(key);
  LWLockRelease(shared->lane_lock);
  return h;
}

LaneHint* find_or_make_lane_hint(const LaneKey& key) {
  LaneHint* h = find_lane_hint(key);
  if (h) return h;
  TimestampTz now = GetCurrentTimestamp();
  LWLockAcquire(shared->lane_lock, LW_EXCLUSIVE);
  h = probe(key);
  if (!h) {
    uint32 start = lane_start(key);
    for (int i = 0; i < kProbes; i++) {
      LaneHint* c = &shared->lanes[(start + i) % shared->lane_capacity];
      if (!c->live) {
        h = c;
        break;
      }
      if (!h || c->last_used < h->last_used) h = c;
    }
    SpinLockAcquire(&h->lock);
    h->live = true;
    h->loaded = false;
    h->key = key;
    h->last_used = now;
    h->epoch = 0;
    h->open_seq = 0;
    h->map_lanes = 0;
    h->tail_block = InvalidBlockNumber;
    h->frontier_block = InvalidBlockNumber;
    h->frontier_ordinal = 0;
    h->frontier_index = 0;
    h->appended = 0;
    h->low_block = InvalidBlockNumber;
    h->low_ordinal = 0;
    h->expiring = true;
    h->expiring_block = InvalidBlockNumber;
    h->expiring_ordinal = 0;
    h->sweep_wanted = false;
    h->sweep_at = kNever;
    h->resume_block = InvalidBlockNumber;
    h->swept_at = now;
    h->revisit_head = 0;
    h->revisit_count = 0;
    h->timed_count = 0;
    SpinLockRelease(&h->lock);
  }
  LWLockRelease(shared->lane_lock);
  return h;
}

void load_lane_hint(LaneHint* h, const LaneKey& key, const LaneLoad& load) {
  Held held = hold(h, key);
  if (!held.ok) return;
  if (!h->loaded) {
    h->epoch = load.epoch;
    if (load.open_seq > h->open_seq) h->open_seq = load.open_seq;
    if (load.map_lanes > h->map_lanes) h->map_lanes = load.map_lanes;
    // The frontier starts at the bottom: what was offered before the hints were lost is looked at once more.
    if (h->frontier_block == InvalidBlockNumber) {
      h->frontier_block = load.first_block;
      h->frontier_ordinal = 0;
      h->frontier_index = 0;
    }
    if (h->tail_block == InvalidBlockNumber) h->tail_block = load.last_block;
    if (load.appended > h->appended) h->appended = load.appended;
    h->loaded = load.lasting;
  }
  SpinLockRelease(&h->lock);
}

bool view_lane_hint(LaneHint* h, const LaneKey& key, LaneView* out) {
  Held held = hold(h, key);
  if (!held.ok) return false;
  bool loaded = h->loaded;
  out->epoch = h->epoch;
  out->open_seq = h->open_seq;
  out->tail_block = h->tail_block;
  out->frontier_block = h->frontier_block;
  out->frontier = position(h->frontier_ordinal, h->frontier_index);
  out->low_block = h->low_block;
  out->low = position(h->low_ordinal, 0);
  out->appended = h->appended;
  out->map_lanes = h->map_lanes;
  out->swept_at = h->swept_at;
  SpinLockRelease(&h->lock);
  return loaded;
}

void hint_appended(LaneHint* h, const LaneKey& key, BlockNumber tail_block, BlockNumber page_block, uint32 page_ordinal, uint16 page_count,
                   bool expires) {
  Held held = hold(h, key);
  // The entry was given away meanwhile. If it was made anew and loaded before our page changed, nobody else would tell
  // it of these slots: they lie above the frontier, where no sweep looks.
  while (!held.ok) {
    h = find_or_make_lane_hint(key);
    held = hold(h, key);
  }
  uint64 n = position(page_ordinal, page_count);
  if (n > h->appended) {
    h->appended = n;
    h->tail_block = tail_block;
  }
  if (page_ordinal == 0 && h->frontier_block == InvalidBlockNumber) h->frontier_block = page_block;
  // Appenders of two pages may come here in either order: the earlier page stands for both.
  if (expires && (!h->expiring || (h->expiring_block != InvalidBlockNumber && page_ordinal < h->expiring_ordinal))) {
    h->expiring = true;
    h->expiring_block = page_block;
    h->expiring_ordinal = page_ordinal;
  }
  SpinLockRelease(&h->lock);
}

void want_expiry_look(LaneHint* h, const LaneKey& key) {
  Held held = hold(h, key);
  if (!held.ok) return;
  h->expiring = true;
  h->expiring_block = InvalidBlockNumber;
  SpinLockRelease(&h->lock);
}

bool take_expiry_look(LaneHint* h, const LaneKey& key, BlockNumber* block) {
  Held held = hold(h, key);
  if (!held.ok) return false;
  bool wanted = h->loaded && h->expiring;
  if (wanted) {
    *block = h->expiring_block != InvalidBlockNumber ? h->expiring_block : h->low_block;
    h->expiring = false;
  }
  SpinLockRelease(&h->lock);
  return wanted;
}

void hint_lane_count(LaneHint* h, const LaneKey& key, uint32 lanes) {
  Held held = hold(h, key);
  if (!held.ok) return;
  if (lanes > h->map_lanes) h->map_lanes = lanes;
  SpinLockRelease(&h->lock);
}

void hint_opened(LaneHint* h, const LaneKey& key, uint64 open_seq) {
  Held held = hold(h, key);
  if (!held.ok) return;
  if (open_seq > h->open_seq) h->open_seq = open_seq;
  SpinLockRelease(&h->lock);
}

ReserveResult reserve_range(LaneHint* h, const LaneKey& key, TimestampTz now, int want, bool frontier_only, Range* out, BlockNumber* block) {
  Held held = hold(h, key);
  if (!held.ok) return ReserveResult::kLost;
  ReserveResult result = ReserveResult::kNone;
  h->last_used = now;
  if (!frontier_only && h->timed_count > 0 && h->timed[0].at <= now) {
    *out = pop_timed(h);
    result = ReserveResult::kRange;
  } else if (!frontier_only && h->revisit_count > 0) {
    *out = take_front(h, want);
    result = ReserveResult::kRange;
  } else if (h->frontier_block != InvalidBlockNumber) {
    uint64 at = position(h->frontier_ordinal, h->frontier_index);
    if (at < h->appended) {
      if (h->frontier_index >= kSlotsPerPage) {
        *block = h->frontier_block;
        result = ReserveResult::kNextPage;
      } else {
        uint64 page_end = position(h->frontier_ordinal, kSlotsPerPage);
        uint64 end = h->appended < page_end ? h->appended : page_end;
        uint64 n = end - at;
        if (n > static_cast<uint64>(want)) n = static_cast<uint64>(want);
        *out = Range{h->frontier_block, static_cast<uint8>(h->frontier_index), static_cast<uint8>(n), 0, 0};
        h->frontier_index = static_cast<uint16>(h->frontier_index + n);
        result = ReserveResult::kRange;
      }
    }
  }
  SpinLockRelease(&h->lock);
  return result;
}

void advance_frontier(LaneHint* h, const LaneKey& key, BlockNumber from, BlockNumber to) {
  Held held = hold(h, key);
  if (!held.ok) return;
  if (h->frontier_block == from && h->frontier_index >= kSlotsPerPage && to != InvalidBlockNumber) {
    h->frontier_block = to;
    h->frontier_ordinal++;
    h->frontier_index = 0;
  }
  SpinLockRelease(&h->lock);
}

int waiting_ranges(LaneHint* h, const LaneKey& key, TimestampTz now) {
  Held held = hold(h, key);
  if (!held.ok) return 0;
  // All that are due: they are served first, and rows that stay locked must not keep from the ranges behind them.
  int n = h->revisit_count + due_below(h, 0, now);
  SpinLockRelease(&h->lock);
  return n;
}

bool lane_has_work(LaneHint* h, const LaneKey& key, TimestampTz now, TimestampTz* next_at) {
  Held held = hold(h, key);
  if (!held.ok) return true;
  bool work = h->revisit_count > 0 || !h->loaded || sweep_is_due(h, now);
  if (h->frontier_block != InvalidBlockNumber && position(h->frontier_ordinal, h->frontier_index) < h->appended) work = true;
  TimestampTz next = h->sweep_at;
  if (h->timed_count > 0 && h->timed[0].at < next) next = h->timed[0].at;
  if (next <= now) work = true;
  if (next < *next_at) *next_at = next;
  SpinLockRelease(&h->lock);
  return work;
}

void publish_range(LaneHint* h, const LaneKey& key, const Range& range) {
  Held held = hold(h, key);
  if (!held.ok) return;
  push_revisit(h, range);
  SpinLockRelease(&h->lock);
}

void publish_timed(LaneHint* h, const LaneKey& key, TimestampTz at, const Range& range) {
  Held held = hold(h, key);
  if (!held.ok) return;
  push_timed(h, at, range);
  SpinLockRelease(&h->lock);
}

void publish_by_key(const LaneKey& key, const Range& range, TimestampTz at) {
  LaneHint* h = find_lane_hint(key);
  if (!h) return;
  if (at == 0)
    publish_range(h, key, range);
  else
    publish_timed(h, key, at, range);
}

void publish_committed(const LaneKey& key, const Range& range, uint32 page_ordinal, TimestampTz due, bool first) {
  LaneHint* h = find_lane_hint(key);
  if (!h) return;
  Held held = hold(h, key);
  if (!held.ok) return;
  uint64 frontier = position(h->frontier_ordinal, h->frontier_index);
  uint64 start = position(page_ordinal, range.first);
  if (first || (h->frontier_block != InvalidBlockNumber && start < frontier)) {
    uint64 passed = frontier - start;
    Range r = range;
    if (!first && passed < r.count) r.count = static_cast<uint8>(passed);
    if (due == 0)
      push_revisit(h, r);
    else
      push_timed(h, due, r);
  } else if (due != 0 && due < h->sweep_at && h->timed_count < kTimed) {
    // Not offered yet, and not due either: whoever waits must know when to look. The frontier will meet it as well.
    push_timed(h, due, range);
  }
  SpinLockRelease(&h->lock);
}

void want_sweep(const LaneKey& key, TimestampTz at) {
  LaneHint* h = find_lane_hint(key);
  if (!h) return;
  Held held = hold(h, key);
  if (!held.ok) return;
  if (at == 0)
    h->sweep_wanted = true;
  else if (at < h->sweep_at)
    h->sweep_at = at;
  SpinLockRelease(&h->lock);
}

SweepPlan begin_sweep(LaneHint* h, const LaneKey& key, TimestampTz now, bool force) {
  SweepPlan plan{false, true, InvalidBlockNumber, 0};
  Held held = hold(h, key);
  if (!held.ok) return plan;
  plan.go = h->loaded && (force || sweep_is_due(h, now));
  if (plan.go) {
    // A sweep that found the list full goes on from there: from the bottom, one row that stays locked would fill a
    // small list again and again and starve the rest.
    plan.from_bottom = h->resume_block == InvalidBlockNumber;
    plan.start = plan.from_bottom ? h->low_block : h->resume_block;
    h->resume_block = InvalidBlockNumber;
    if (plan.from_bottom) {
      h->sweep_wanted = false;
      // It meets every deadline and due time again; keeping the old entries would only make doubles. One that goes on
      // must keep what the part before it has found.
      h->timed_count = 0;
      h->sweep_at = kNever;
    }
    plan.end = h->frontier_block == InvalidBlockNumber ? 0 : position(h->frontier_ordinal, h->frontier_index);
  }
  SpinLockRelease(&h->lock);
  return plan;
}

int room_for_revisits(LaneHint* h, const LaneKey& key) {
  Held held = hold(h, key);
  if (!held.ok) return 0;
  int room = kRevisits - h->revisit_count;
  SpinLockRelease(&h->lock);
  return room;
}

void end_sweep(LaneHint* h, const LaneKey& key, TimestampTz now, BlockNumber resume, BlockNumber low_block, uint32 low_ordinal,
               TimestampTz next_at) {
  Held held = hold(h, key);
  if (!held.ok) return;
  h->swept_at = now;
  h->resume_block = resume;
  if (low_block != InvalidBlockNumber && (h->low_block == InvalidBlockNumber || low_ordinal >= h->low_ordinal)) {
    h->low_block = low_block;
    h->low_ordinal = low_ordinal;
  }
  if (next_at < h->sweep_at) h->sweep_at = next_at;
  SpinLockRelease(&h->lock);
}

}  // namespace baton
