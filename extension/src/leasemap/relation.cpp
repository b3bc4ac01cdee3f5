// Opening segments and finding their maps and hints.
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "map.hpp"

namespace baton {

Oid lease_am_oid() { return get_am_oid("baton_lease", true); }

bool is_map(Relation index) {
  return index->rd_rel->relkind == RELKIND_INDEX && OidIsValid(index->rd_rel->relam) && index->rd_rel->relam == lease_am_oid();
}

Oid find_map(Relation heap) {
  Oid am = lease_am_oid();
  Oid found = InvalidOid;
  if (!OidIsValid(am)) return found;
  List* indexes = RelationGetIndexList(heap);
  ListCell* lc;
  foreach (lc, indexes) {
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(lc)));
    if (!HeapTupleIsValid(tuple)) continue;
    if (reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relam == am) found = lfirst_oid(lc);
    ReleaseSysCache(tuple);
    if (OidIsValid(found)) break;
  }
  list_free(indexes);
  return found;
}

bool open_segment_if_there(Oid heap_oid, LOCKMODE lock, Segment* s) {
  s->heap = try_relation_open(heap_oid, lock);
  if (!s->heap) return false;
  Oid map_oid = find_map(s->heap);
  if (!OidIsValid(map_oid))
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("segment \"%s\" has no lease map", RelationGetRelationName(s->heap)),
                    errhint("Make it again: CREATE INDEX \"%s_map\" ON baton_data.\"%s\" USING baton_lease (id, lane, generation, failures, not_before, routing_key);",
                            RelationGetRelationName(s->heap), RelationGetRelationName(s->heap))));
  s->map = index_open(map_oid, lock);
  return true;
}

Segment open_segment(Oid heap_oid, LOCKMODE lock) {
  Segment s;
  if (!open_segment_if_there(heap_oid, lock, &s))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("the queue has been dropped meanwhile")));
  return s;
}

void close_segment(const Segment& s, LOCKMODE unlock) {
  index_close(s.map, unlock);
  table_close(s.heap, unlock);
}

LaneKey lane_key(Relation map, uint32 lane) { return LaneKey{MyDatabaseId, rel_number(map), lane}; }

LaneHint* lane_hint(Relation map, uint32 lane) {
  if (!shared) return nullptr;
  LaneKey key = lane_key(map, lane);
  LaneHint* h = find_or_make_lane_hint(key);
  if (h->loaded) return h;
  // Asked before anything is read: what is read while replay goes on is out of date at once.
  bool lasting = !RecoveryInProgress();
  MapMeta meta;
  LaneDirectoryEntry entry;
  read_meta(map, &meta, &entry, lane);
  LaneLoad load{meta.epoch, meta.open_seq, meta.lane_count, entry.first, entry.last, 0, lasting};
  // A crash may have left the directory one page behind: the lane's end is where no page follows.
  for (BlockNumber block = entry.last; BlockNumberIsValid(block);) {
    Buffer buf = ReadBuffer(map, block);
    LockBuffer(buf, BUFFER_LOCK_SHARE);
    Page page = BufferGetPage(buf);
    load.last_block = block;
    block = InvalidBlockNumber;
    if (page_is_map_page(page)) {
      load.appended = static_cast<uint64>(map_tail(page)->ordinal) * kSlotsPerPage + static_cast<uint64>(map_slot_count(page));
      block = map_tail(page)->next;
    }
    UnlockReleaseBuffer(buf);
  }
  load_lane_hint(h, key, load);
  return h;
}

LaneView view_lane(Relation map, uint32 lane) {
  LaneView v;
  while (!view_lane_hint(lane_hint(map, lane), lane_key(map, lane), &v)) CHECK_FOR_INTERRUPTS();
  return v;
}

}  // namespace baton
