// See drain.hpp.
#include "drain.hpp"

#include "../pg/xid_status.hpp"

namespace baton {
namespace {

constexpr int kNoteBucket = 8;
DrainNote* bucket(RelNumber rel) {
  uint32 h = hash_combine(murmurhash32(MyDatabaseId), murmurhash32(rel));
  return &shared->drains[h % (kDrainNotes / kNoteBucket) * kNoteBucket];
}

// The slot of a row that plain SQL deleted does not know the deleter: the row has to say whether anybody can see it.
bool row_is_needed(Relation heap, const ItemPointerData& tid) {
  if (ItemPointerGetBlockNumberNoCheck(&tid) >= RelationGetNumberOfBlocks(heap)) return false;
  SnapshotData snapshot;
  InitNonVacuumableSnapshot(snapshot, GlobalVisTestFor(heap));
  TupleTableSlot* row = table_slot_create(heap, nullptr);
  ItemPointerData t = tid;
  bool needed = table_tuple_fetch_row_version(heap, &t, &snapshot, row);
  ExecDropSingleTupleTableSlot(row);
  return needed;
}

// Why the first slot that is not settled for good is not: the transaction it names, its claim, or nobody has it yet.
Keep unsettled_why(const Slot& s) {
  if (slot_has_open_xid(s)) return Keep::kOpenTransaction;
  return slot_state(s) == SlotState::kClaimed ? Keep::kClaim : Keep::kUnsettled;
}

// Which blocks are pages of the map, and which ones others link to. A lost page must not pass for one that is settled.
struct Links {
  bool* there;
  bool* wanted;
  BlockNumber blocks;
};

Links new_links(Relation map) {
  Links l;
  auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
  int n = list_lanes(map, lanes, kMaxLanes);
  l.blocks = RelationGetNumberOfBlocks(map);
  l.there = static_cast<bool*>(palloc0(l.blocks));
  l.wanted = static_cast<bool*>(palloc0(l.blocks));
  for (int i = 0; i < n; i++)
    if (lanes[i].first < l.blocks) l.wanted[lanes[i].first] = true;
  pfree(lanes);
  return l;
}

// False: the map has grown since.
bool links_are_sound(Relation map, const Links& l) {
  for (BlockNumber b = kMetaBlock + 1; b < l.blocks; b++)
    if (l.wanted[b] && !l.there[b]) raise_damaged_map(map, b);
  return RelationGetNumberOfBlocks(map) == l.blocks;
}

// Why something on the page is not settled for good; kNothing: all is. heap may be null: then rows are not asked. So may links.
Keep look_at_block(Relation heap, Relation map, BlockNumber block, BufferAccessStrategy strategy, Drain* d, Links* links) {
  Slot open[kSlotsPerPage];
  ItemPointerData purged[kSlotsPerPage];
  int open_count = 0;
  int purged_count = 0;
  Keep unsettled = Keep::kNothing;
  Buffer buf = ReadBufferExtended(map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  Page page = BufferGetPage(buf);
  if (page_is_map_page(page)) {
    const Slot* slots = map_slots(page);
    int n = map_slot_count(page);
    BlockNumber next = map_tail(page)->next;
    if (links) {
      links->there[block] = true;
      if (next < links->blocks) links->wanted[next] = true;
    }
    for (int i = 0; i < n && unsettled == Keep::kNothing; i++) {
      const Slot& s = slots[i];
      if (slot_has_open_xid(s)) {
        open[open_count++] = s;
      } else if (slot_is_unsettled(s)) {
        unsettled = unsettled_why(s);
      } else if (slot_state(s) == SlotState::kGone) {
        note_drained_slot(s, d);
        ItemPointerData tid = slot_tid(s);
        if (slot_kind(s) == SettleKind::kPurged && ItemPointerIsValid(&tid)) {
          d->purged = true;
          if (heap) purged[purged_count++] = tid;
        }
      }
    }
  }
  UnlockReleaseBuffer(buf);
  if (unsettled != Keep::kNothing) return unsettled;
  uint64 known_xid = 0;
  XidStatus known = XidStatus::kInProgress;
  for (int i = 0; i < open_count; i++) {
    Slot& s = open[i];
    if (slot_xid(s) != known_xid) {
      known_xid = slot_xid(s);
      known = xid_status(known_xid);
    }
    // Too old for the commit log: a sweep asks the row and writes the outcome down.
    resolve_slot(s, known);
    if (slot_is_unsettled(s)) return unsettled_why(s);
    note_drained_slot(s, d);
  }
  for (int i = 0; i < purged_count && !d->rows_needed; i++) d->rows_needed = row_is_needed(heap, purged[i]);
  return Keep::kNothing;
}

}  // namespace

DrainNote read_drain_note(RelNumber rel) {
  DrainNote note{MyDatabaseId, rel, 0, 0, InvalidBlockNumber, 0, 0};
  const DrainNote* b = bucket(rel);
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  for (int i = 0; i < kNoteBucket; i++)
    if (b[i].database == MyDatabaseId && b[i].rel == rel) note = b[i];
  LWLockRelease(shared->worker_lock);
  return note;
}

void write_drain_note(DrainNote note) {
  DrainNote* b = bucket(note.rel);
  note.last_used = GetCurrentTimestamp();
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  DrainNote* place = nullptr;
  for (int i = 0; i < kNoteBucket; i++) {
    if (b[i].database == MyDatabaseId && b[i].rel == note.rel) {
      place = &b[i];
      break;
    }
    if (!place || !OidIsValid(b[i].database) || (OidIsValid(place->database) && b[i].last_used < place->last_used)) place = &b[i];
  }
  *place = note;
  LWLockRelease(shared->worker_lock);
}

void note_drained_slot(const Slot& s, Drain* d) {
  if (slot_xid(s) > d->newest_xid) d->newest_xid = slot_xid(s);
  if (slot_kind(s) == SettleKind::kMoved) {
    // Its token is answered where the claim is now.
    d->moved = true;
  } else if (s.nonce != 0 && s.held_ms != 0 && s.deadline > d->last_deadline) {
    // Without a claim the field is a due time.
    d->last_deadline = s.deadline;
  }
}

Drain look_at_map(Relation heap, Relation map, BlockNumber look_first) {
  Drain d{Keep::kNothing, InvalidBlockNumber, 0, 0, false, false, false};
  if (BlockNumberIsValid(look_first) && look_first < RelationGetNumberOfBlocks(map)) {
    Drain scratch = d;
    d.unsettled = look_at_block(nullptr, map, look_first, nullptr, &scratch, nullptr);
    if (d.unsettled != Keep::kNothing) {
      d.unsettled_at = look_first;
      return d;
    }
  }
  Links links = new_links(map);
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  for (BlockNumber b = kMetaBlock + 1; b < links.blocks && d.unsettled == Keep::kNothing; b++) {
    CHECK_FOR_INTERRUPTS();
    d.unsettled = look_at_block(heap, map, b, strategy, &d, &links);
    if (d.unsettled != Keep::kNothing) d.unsettled_at = b;
  }
  FreeAccessStrategy(strategy);
  if (d.unsettled == Keep::kNothing && !links_are_sound(map, links)) d.unsettled = Keep::kUnsettled;
  pfree(links.there);
  pfree(links.wanted);
  return d;
}

}  // namespace baton
