// See end_claim.hpp.
#include "end_claim.hpp"

#include "../core/backoff.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/shmem.hpp"
#include "resolve.hpp"
#include "shared_tables.hpp"

namespace baton {
namespace {

// When the message is due again; 0: at once.
TimestampTz due_after(const EndTerms& terms, const Slot& s, TimestampTz now) {
  int64 wait = terms.delay;
  if (wait < 0) wait = terms.failed ? spread_backoff_us(terms.backoff, terms.max_backoff, s.failures + 1, s.id) : 0;
  return wait > 0 ? now + wait : 0;
}

// The hint comes after the change. Whoever waits must learn of a later time as well.
void publish_ended(const Segment& segment, const LaneKey& key, const Place& place, const Slot& now_on_page, int32 queue_id) {
  bool lapsed = slot_state(now_on_page) == SlotState::kClaimed;
  // Nobody claims from a long segment: the mover gives the message back.
  if (shared_table_of(segment.heap).kind == SharedKind::kLong) long_noted(clock_now());
  publish_by_key(key, Range{place.block, place.index, 1, 0, 0}, lapsed ? 0 : now_on_page.deadline);
  // Its attempts are used up: the mover looks after it.
  if (lapsed) want_sweep(key, 0);
  wake_waiters(MyDatabaseId, queue_id, 1);
}

}  // namespace

EndResult end_claim(const Segment& segment, const Place& place, uint64 nonce, const EndTerms& terms, Slot* ended) {
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  EndResult result = EndResult::kNotClaimed;
  for (bool again = true; again;) {
    CHECK_FOR_INTERRUPTS();
    again = false;
    result = EndResult::kNotClaimed;
    if (!copy_slots(segment.map, place.block, place.index, 1, nullptr, copy) || copy->count == 0) break;
    resolve_copy(segment.heap, copy);
    const Slot& s = copy->resolved[0];
    if (nonce != 0 && s.nonce != nonce) break;
    SlotPhase phase = slot_phase(s, copy->status[0], clock_now());
    if (phase == SlotPhase::kSettling || phase == SlotPhase::kAskRow) result = EndResult::kSettling;
    if (phase != SlotPhase::kHeld) break;
    debug_here("end-claim");
    Buffer buf = ReadBuffer(segment.map, place.block);
    LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
    Page page = BufferGetPage(buf);
    Slot* on_page = &map_slots(page)[place.index];
    // Extended, settled or claimed anew since: it is looked at again.
    again = memcmp(on_page, &copy->slots[0], sizeof(Slot)) != 0;
    if (!again) {
      TimestampTz now = clock_now();
      TimestampTz due = due_after(terms, s, now);
      Fragment f{slot_offset(place.index), sizeof(Slot)};
      map_log_begin(segment.map);
      START_CRIT_SECTION();
      *on_page = s;
      take_away(*on_page, terms.how, now, due, terms.failed, terms.max_attempts);
      map_log(segment.map, buf, &f, 1);
      END_CRIT_SECTION();
      *ended = s;
      result = EndResult::kEnded;
    }
    Slot after = *on_page;
    LaneKey key = lane_key(segment.map, map_tail(page)->lane);
    UnlockReleaseBuffer(buf);
    if (result == EndResult::kEnded) publish_ended(segment, key, place, after, terms.queue_id);
  }
  pfree(copy);
  return result;
}

}  // namespace baton
