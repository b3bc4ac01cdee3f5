// The lease map's own operations: format, append, log. Everything that changes a page of a map is in this folder.
#pragma once

#include "hints.hpp"
#include "page.hpp"

namespace baton {

// ---- wal.cpp
struct Fragment {
  uint16 offset;
  uint16 length;
};
constexpr int kMaxFragments = 3 * kSlotsPerPage + 2;

// Logs bytes of a page that have just been changed in place, as a generic WAL record written by hand (whole-page
// comparison costs twenty times as much and would be paid under the page lock). Use:
//   map_log_begin(map);  START_CRIT_SECTION();  change;  lsn = map_log(map, buf, fragments, n);  END_CRIT_SECTION();
// map_log marks the buffer dirty and sets the page's LSN. The caller holds the buffer's exclusive lock. Returns the end of the record, or
// InvalidXLogRecPtr for an unlogged map.
void map_log_begin(Relation map);
XLogRecPtr map_log(Relation map, Buffer buf, const Fragment* fragments, int count);

// ---- meta.cpp
// Reads the metapage; makes it where an unlogged map lost it in a crash. ERROR if the format is not ours (QB009 if newer).
void read_meta(Relation map, MapMeta* header, LaneDirectoryEntry* lane_entry, uint32 lane);
uint64 next_epoch();
void init_meta_page(Page page, uint64 epoch);
// Makes the metapage at block 0 of an empty map.
void create_meta(Relation map);
// Opens a segment for writing, as number open_seq. False if it was open already.
bool open_map(Relation map, uint64 open_seq);
// Notes the transaction that truncated this segment without waiting for the horizon.
void set_guard_xid(Relation map, uint64 full_xid);
// Every lane of the map. Returns the number, at most max.
// A page that a lane links to is not there: what lies behind it must be taken neither for settled nor for nothing.
[[noreturn]] void raise_damaged_map(Relation map, BlockNumber block);
int list_lanes(Relation map, LaneDirectoryEntry* out, int max);

// ---- append.cpp
struct NewSlot {
  ItemPointerData tid;
  int64 id;
  uint32 key_hash;
  uint32 generation;
  uint16 failures;
  bool foreign;
  bool expires;  // the row has expires_at
  int64 due;  // 0: at once
  bool first;         // offered before what waits in the lane
  const Slot* claim;  // the live claim that a moved message takes with it; nullptr: none
};
// Appends slots in state INSERTED of the current (sub)transaction and notes their ranges for its end. Caller holds a
// lock on heap and map to the end of the transaction. Returns true if a page was added: time to look at the segment's size.
// queue_id 0: the map is none of a queue's own segments. It has no hints, and nobody is told.
bool append_slots(Relation map, uint32 lane, const NewSlot* slots, int count, int32 queue_id);
void init_map_page(Page page, uint32 lane, uint32 ordinal);

// ---- relations
// The lease map of a segment, InvalidOid if it has none. Uses the relation cache only.
Oid find_map(Relation heap);
bool is_map(Relation index);
Oid lease_am_oid();

// Opens heap and map of a segment with the lock that every slot change needs.
struct Segment {
  Relation heap;
  Relation map;
};
Segment open_segment(Oid heap_oid, LOCKMODE lock);  // 42704 if the queue was dropped while the lock was waited for
bool open_segment_if_there(Oid heap_oid, LOCKMODE lock, Segment* s);
void close_segment(const Segment& s, LOCKMODE unlock);  // NoLock: keep to the end of the transaction

LaneKey lane_key(Relation map, uint32 lane);
// The shared hints of a lane, made from the pages where they are not known.
LaneHint* lane_hint(Relation map, uint32 lane);
// Its fields, whoever else needs the entry's place meanwhile. Preload is required.
LaneView view_lane(Relation map, uint32 lane);

}  // namespace baton
