// Pages of the lease map. Block 0 is the metapage; every other page belongs to one lane and links to that lane's next
// page. Slots lie below pd_lower in order of arrival, so that a generic WAL image leaves out the unused rest; the rest
// of a page is zero, always (replay relies on it as much as we do).
#pragma once

#include "../core/slot.hpp"
#include "../pg/postgres.hpp"

namespace baton {

constexpr uint32 kMapMagic = 0x4254504d;
constexpr uint16 kMapFormatVersion = 1;
constexpr uint16 kMapPageId = 0xBA70;
constexpr BlockNumber kMetaBlock = 0;
constexpr int kSlotsPerPage = 127;

struct LaneDirectoryEntry {
  uint32 lane;
  BlockNumber first;
  BlockNumber last;
};

// MapMeta.flags: every slot of this map whose row has expires_at carries kExpiresFlag. Not so in maps of 0.1.0.
constexpr uint16 kMapKnowsExpiry = 1;

struct MapMeta {
  uint32 magic;
  uint16 version;
  uint16 flags;
  uint64 epoch;      // new at every build and truncation; never repeats
  uint64 guard_xid;  // full xid of a truncation that did not wait for the horizon; 0 = none
  uint64 open_seq;   // order in which segments became the one that is written; 0 = not opened since its truncation
  BlockNumber next_directory;  // reserved: directory pages beyond this one
  uint32 lane_count;
  LaneDirectoryEntry lanes[FLEXIBLE_ARRAY_MEMBER];
};

struct MapPageTail {
  uint32 lane;
  uint32 ordinal;    // number of this page in its lane, from 0
  BlockNumber next;  // the lane's next page, or InvalidBlockNumber
  uint16 version;
  uint16 page_id;
};

inline MapMeta* map_meta(Page page) { return reinterpret_cast<MapMeta*>(PageGetContents(page)); }
inline MapPageTail* map_tail(Page page) { return reinterpret_cast<MapPageTail*>(PageGetSpecialPointer(page)); }
inline Slot* map_slots(Page page) { return reinterpret_cast<Slot*>(PageGetContents(page)); }
inline int map_slot_count(Page page) {
  return (reinterpret_cast<PageHeader>(page)->pd_lower - MAXALIGN(SizeOfPageHeaderData)) / static_cast<int>(sizeof(Slot));
}
inline uint16 slot_offset(int index) {
  return static_cast<uint16>(MAXALIGN(SizeOfPageHeaderData) + static_cast<size_t>(index) * sizeof(Slot));
}
static_assert(MAXALIGN(SizeOfPageHeaderData) + kSlotsPerPage * sizeof(Slot) + MAXALIGN(sizeof(MapPageTail)) <= BLCKSZ);

constexpr int kMaxLanes =
    (BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - static_cast<int>(offsetof(MapMeta, lanes))) / static_cast<int>(sizeof(LaneDirectoryEntry));

inline bool page_is_map_page(Page page) {
  return !PageIsNew(page) && PageGetSpecialSize(page) == MAXALIGN(sizeof(MapPageTail)) && map_tail(page)->page_id == kMapPageId;
}

inline ItemPointerData slot_tid(const Slot& s) {
  ItemPointerData t;
  memcpy(&t, s.tid, sizeof(t));
  return t;
}
inline void set_slot_tid(Slot& s, const ItemPointerData& t) { memcpy(s.tid, &t, sizeof(t)); }

// Place of a slot: block and index on it. position = (lane, ordinal * kSlotsPerPage + index) orders slots of a lane.
struct Place {
  BlockNumber block;
  uint8 index;
};

}  // namespace baton
