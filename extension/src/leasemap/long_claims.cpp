// See long_claims.hpp.
#include "long_claims.hpp"

namespace baton {

LongFind find_in_long(const Segment& segment, int32 queue_id, int64 id, uint32 generation, uint64 nonce, Place* place) {
  uint32 lane = shared_lane(SharedTable{SharedKind::kLong, 0}, queue_id, id, 0);
  MapMeta meta;
  LaneDirectoryEntry entry;
  read_meta(segment.map, &meta, &entry, lane);
  LongFind result = LongFind::kNone;
  for (BlockNumber block = entry.first; BlockNumberIsValid(block) && result != LongFind::kFound;) {
    CHECK_FOR_INTERRUPTS();
    Buffer buf = ReadBuffer(segment.map, block);
    LockBuffer(buf, BUFFER_LOCK_SHARE);
    Page page = BufferGetPage(buf);
    BlockNumber next = InvalidBlockNumber;
    if (page_is_map_page(page) && map_tail(page)->lane == lane) {
      const Slot* slots = map_slots(page);
      for (int i = 0; i < map_slot_count(page) && result != LongFind::kFound; i++) {
        if (slots[i].id != id || static_cast<int32>(slots[i].key_hash) != queue_id) continue;
        LongFind find = slots[i].nonce == nonce                                      ? LongFind::kFound
                        : slots[i].nonce == 0 && slots[i].generation == generation ? LongFind::kLapsed
                                                                                     : LongFind::kOther;
        if (find <= result) continue;
        result = find;
        *place = Place{block, static_cast<uint8>(i)};
      }
      next = map_tail(page)->next;
    }
    UnlockReleaseBuffer(buf);
    block = next;
  }
  return result;
}

}  // namespace baton
