// See lapse.hpp.
#include "lapse.hpp"

namespace baton {

int end_lapsed(const Segment& segment, BlockNumber block, PageCopy* copy, const bool* which, TimestampTz now) {
  Fragment fragments[kSlotsPerPage];
  int changes[kSlotsPerPage];
  int n = 0;
  Buffer buf = ReadBuffer(segment.map, block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Slot* slots = map_slots(BufferGetPage(buf)) + copy->first;
  for (int i = 0; i < copy->count; i++) {
    if (!which[i] || slot_phase(copy->resolved[i], copy->status[i], now) != SlotPhase::kLapsed) continue;
    if (memcmp(&slots[i], &copy->slots[i], sizeof(Slot)) != 0) continue;
    fragments[n] = Fragment{slot_offset(copy->first + i), sizeof(Slot)};
    changes[n++] = i;
  }
  if (n > 0) {
    map_log_begin(segment.map);
    START_CRIT_SECTION();
    for (int k = 0; k < n; k++) {
      int i = changes[k];
      // As a claim that was rolled back: its token hears that its lease is over.
      ready_slot(copy->resolved[i], SettleKind::kVoid, 0, true);
      slots[i] = copy->resolved[i];
    }
    map_log(segment.map, buf, fragments, n);
    END_CRIT_SECTION();
    for (int k = 0; k < n; k++) {
      int i = changes[k];
      copy->slots[i] = copy->resolved[i];
      copy->changed[i] = false;
      copy->status[i] = XidStatus::kCommitted;
    }
  }
  UnlockReleaseBuffer(buf);
  return n;
}

}  // namespace baton
