// Appending slots. The heap rows are there already, in the same transaction; an error in between leaves dead rows and
// no slot. Locks: the tail page's content lock; for a new page the metapage's first and the tail's second.
#include "../core/lane.hpp"
#include "../pg/xid_status.hpp"
#include "map.hpp"
#include "xact.hpp"

namespace baton {

void init_map_page(Page page, uint32 lane, uint32 ordinal) {
  PageInit(page, BLCKSZ, sizeof(MapPageTail));
  reinterpret_cast<PageHeader>(page)->pd_lower = slot_offset(0);
  MapPageTail* tail = map_tail(page);
  tail->lane = lane;
  tail->ordinal = ordinal;
  tail->next = InvalidBlockNumber;
  tail->version = kMapFormatVersion;
  tail->page_id = kMapPageId;
}

namespace {

// Changes one block number on a locked page and logs it.
void set_block_number(Relation map, Buffer buf, BlockNumber* where, BlockNumber value) {
  Fragment f{static_cast<uint16>(reinterpret_cast<char*>(where) - BufferGetPage(buf)), sizeof(BlockNumber)};
  map_log_begin(map);
  START_CRIT_SECTION();
  *where = value;
  map_log(map, buf, &f, 1);
  END_CRIT_SECTION();
}

// A new, empty page of the lane; nothing links to it yet.
BlockNumber add_page(Relation map, uint32 lane, uint32 ordinal) {
  Buffer buf = extend_relation(map);
  BlockNumber block = BufferGetBlockNumber(buf);
  GenericXLogState* state = GenericXLogStart(map);
  init_map_page(GenericXLogRegisterBuffer(state, buf, GENERIC_XLOG_FULL_IMAGE), lane, ordinal);
  GenericXLogFinish(state);
  UnlockReleaseBuffer(buf);
  return block;
}

void add_lane(Relation map, Buffer meta_buf, uint32 lane, BlockNumber first) {
  GenericXLogState* state = GenericXLogStart(map);
  Page page = GenericXLogRegisterBuffer(state, meta_buf, 0);
  MapMeta* m = map_meta(page);
  m->lanes[m->lane_count++] = LaneDirectoryEntry{lane, first, first};
  reinterpret_cast<PageHeader>(page)->pd_lower =
      static_cast<LocationIndex>(reinterpret_cast<char*>(&m->lanes[m->lane_count]) - reinterpret_cast<char*>(page));
  GenericXLogFinish(state);
}

// Adds a page to the lane behind `tail_block` (InvalidBlockNumber: the lane's first). Returns the lane's page after it,
// which somebody else may have added meanwhile. Three small records, not one over three pages (the server would compare
// them whole): a crash after the first leaves a page that nothing links to, after the second a directory whose last page
// has a successor, which readers follow.
BlockNumber extend_lane(Relation map, uint32 lane, BlockNumber tail_block, bool hinted) {
  Buffer meta_buf = ReadBuffer(map, kMetaBlock);
  LockBuffer(meta_buf, BUFFER_LOCK_EXCLUSIVE);
  const MapMeta* meta = map_meta(BufferGetPage(meta_buf));
  uint32 entry = 0;
  while (entry < meta->lane_count && meta->lanes[entry].lane != lane) entry++;
  Buffer tail_buf = InvalidBuffer;
  uint32 ordinal = 0;
  BlockNumber existing = InvalidBlockNumber;
  if (BlockNumberIsValid(tail_block)) {
    tail_buf = ReadBuffer(map, tail_block);
    LockBuffer(tail_buf, BUFFER_LOCK_EXCLUSIVE);
    existing = map_tail(BufferGetPage(tail_buf))->next;
    ordinal = map_tail(BufferGetPage(tail_buf))->ordinal + 1;
  } else if (entry < meta->lane_count) {
    existing = meta->lanes[entry].first;
  } else if (meta->lane_count >= static_cast<uint32>(kMaxLanes)) {
    UnlockReleaseBuffer(meta_buf);
    ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("segment has %d lanes, the limit", kMaxLanes)));
  }
  BlockNumber result = existing;
  if (!BlockNumberIsValid(existing)) {
    result = add_page(map, lane, ordinal);
    if (BlockNumberIsValid(tail_block)) {
      set_block_number(map, tail_buf, &map_tail(BufferGetPage(tail_buf))->next, result);
      set_block_number(map, meta_buf, &map_meta(BufferGetPage(meta_buf))->lanes[entry].last, result);
    } else {
      add_lane(map, meta_buf, lane, result);
    }
  }
  uint32 lanes = map_meta(BufferGetPage(meta_buf))->lane_count;
  if (BufferIsValid(tail_buf)) UnlockReleaseBuffer(tail_buf);
  UnlockReleaseBuffer(meta_buf);
  // Claimers read the directory only when they know of more than the default lane.
  LaneHint* h = hinted ? lane_hint(map, kDefaultLane) : nullptr;
  if (h) hint_lane_count(h, lane_key(map, kDefaultLane), lanes);
  return result;
}

// Bytes of a fresh slot that are not zero: the rest of the page is zero on the primary and in replay alike.
uint16 logged_length(const NewSlot& s) {
  if (s.claim) return sizeof(Slot);
  if (s.due != 0) return offsetof(Slot, worker);
  if (s.generation != 0 || s.key_hash != 0) return offsetof(Slot, nonce);
  return offsetof(Slot, key_hash);
}

void fill_slot(Slot* slot, const NewSlot& s, uint64 xid) {
  set_slot_tid(*slot, s.tid);
  slot->state = static_cast<uint8>(SlotState::kInserted);
  slot->kind = static_cast<uint8>((s.foreign ? kForeignFlag : 0) | (s.expires ? kExpiresFlag : 0));
  slot->id = s.id;
  set_slot_xid(*slot, xid);
  slot->failures = s.failures;
  slot->key_hash = s.key_hash;
  slot->generation = s.generation;
  slot->deadline = s.due;
  if (!s.claim) return;
  slot->nonce = s.claim->nonce;
  slot->deadline = s.claim->deadline;
  slot->worker = s.claim->worker;
  slot->held_ms = s.claim->held_ms;
  slot->started_ms = s.claim->started_ms;
  if (waits_for_start(*s.claim)) slot->due_delta = s.claim->due_delta;
  slot->kind = static_cast<uint8>(slot->kind | (s.claim->kind & kSessionFlag));
}

void note_ranges(const LaneKey& key, BlockNumber block, uint32 ordinal, int first, const NewSlot* slots, int count, int32 queue_id) {
  for (int i = 0; i < count;) {
    int n = 1;
    while (i + n < count && slots[i + n].due == slots[i].due && slots[i + n].first == slots[i].first) n++;
    note_enqueued(key, Range{block, static_cast<uint8>(first + i), static_cast<uint8>(n), 0, 0}, ordinal, slots[i].due, slots[i].first, queue_id);
    i += n;
  }
}

}  // namespace

bool append_slots(Relation map, uint32 lane, const NewSlot* slots, int count, int32 queue_id) {
  LaneKey key = lane_key(map, lane);
  LaneHint* hint = queue_id != 0 ? lane_hint(map, lane) : nullptr;
  uint64 xid = current_full_xid();
  // Without preload (pg_restore into a cluster that is not set up yet) there are no hints; a sweep will find the work.
  BlockNumber block = InvalidBlockNumber;
  if (hint) {
    reserve_enqueue_notes(count + 1);
    block = view_lane(map, lane).tail_block;  // or a page before it: links are followed to the lane's end
  }
  if (!BlockNumberIsValid(block)) {
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(map, &meta, &entry, lane);
    block = entry.last;
  }
  bool extended = false;
  Fragment fragments[kSlotsPerPage + 1];
  for (int done = 0; done < count;) {
    if (!BlockNumberIsValid(block)) {
      block = extend_lane(map, lane, InvalidBlockNumber, hint != nullptr);
      extended = true;
    }
    Buffer buf = ReadBuffer(map, block);
    LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
    Page page = BufferGetPage(buf);
    if (!page_is_map_page(page) || map_tail(page)->lane != lane) {
      UnlockReleaseBuffer(buf);
      raise_damaged_map(map, block);
    }
    BlockNumber next = map_tail(page)->next;
    int used = map_slot_count(page);
    if (BlockNumberIsValid(next) || used >= kSlotsPerPage) {
      UnlockReleaseBuffer(buf);
      if (!BlockNumberIsValid(next)) {
        next = extend_lane(map, lane, block, hint != nullptr);
        extended = true;
      }
      block = next;
      continue;
    }
    int n = Min(kSlotsPerPage - used, count - done);
    fragments[0] = Fragment{offsetof(PageHeaderData, pd_lower), sizeof(LocationIndex)};
    bool expires = false;
    for (int i = 0; i < n; i++) {
      fragments[i + 1] = Fragment{slot_offset(used + i), logged_length(slots[done + i])};
      expires |= slots[done + i].expires;
    }
    uint32 ordinal = map_tail(page)->ordinal;
    map_log_begin(map);
    START_CRIT_SECTION();
    for (int i = 0; i < n; i++) fill_slot(&map_slots(page)[used + i], slots[done + i], xid);
    reinterpret_cast<PageHeader>(page)->pd_lower = slot_offset(used + n);
    map_log(map, buf, fragments, n + 1);
    END_CRIT_SECTION();
    // Before the lock goes: the frontier must not learn of positions in another order than they were taken.
    if (hint) {
      hint_appended(hint, key, block, block, ordinal, static_cast<uint16>(used + n), expires);
      note_ranges(key, block, ordinal, used, slots + done, n, queue_id);
    }
    UnlockReleaseBuffer(buf);
    done += n;
  }
  return extended;
}

}  // namespace baton
