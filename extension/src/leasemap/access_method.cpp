// The index access method baton_lease: what PostgreSQL calls. It answers no query; being an index, the map is created,
// truncated, dropped, moved, rebuilt and replicated with its table by PostgreSQL itself. Must work without preload.
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "map.hpp"
#include "row.hpp"
#include "shared_tables.hpp"
#include "sweep.hpp"

namespace baton {

uint32 slot_from_index_values(Relation heap, const Datum* values, const bool* isnull, const ItemPointerData& tid, NewSlot* s) {
  if (isnull[kMapId]) ereport(ERROR, (errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("a message needs an id")));
  s->tid = tid;
  s->id = DatumGetInt64(values[kMapId]);
  s->generation = isnull[kMapGeneration] ? 0 : static_cast<uint32>(DatumGetInt32(values[kMapGeneration]));
  int32 failures = isnull[kMapFailures] ? 0 : DatumGetInt32(values[kMapFailures]);
  s->failures = static_cast<uint16>(Max(0, Min(failures, static_cast<int32>(kMaxFailures))));
  s->due = isnull[kMapNotBefore] ? 0 : DatumGetTimestampTz(values[kMapNotBefore]);
  s->foreign = false;
  s->first = false;
  s->claim = nullptr;
  TimestampTz expires_at;
  s->expires = row_expires_at(heap, tid, s->id, &expires_at);
  s->key_hash = 0;
  SharedTable shared_table = shared_table_of(heap);
  if (shared_table.kind != SharedKind::kNone) {
    if (isnull[kMapRoutingKey]) ereport(ERROR, (errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("a message in a shared table needs a queue_id")));
    int32 queue_id = DatumGetInt32(values[kMapRoutingKey]);
    s->key_hash = static_cast<uint32>(queue_id);
    return shared_lane(shared_table, queue_id, s->id, s->due);
  }
  if (!isnull[kMapRoutingKey]) {
    text* key = DatumGetTextPP(values[kMapRoutingKey]);
    s->key_hash = routing_key_hash(key);
    if (PointerGetDatum(key) != values[kMapRoutingKey]) pfree(key);
  }
  return isnull[kMapLane] ? kDefaultLane : static_cast<uint32>(DatumGetInt32(values[kMapLane]));
}

int32 queue_id_of_segment(Relation heap) {
  int id = 0;
  int segment = 0;
  if (sscanf(RelationGetRelationName(heap), "q%d_%d", &id, &segment) != 2) return 0;
  return id;
}

namespace {

void empty_build(Relation) {
  // The init fork of an unlogged map stays empty: the metapage is made by whoever needs it first (create_meta).
}

bool insert_row(Relation map, Datum* values, bool* isnull, ItemPointer tid, Relation heap, IndexUniqueCheck, bool, IndexInfo*) {
  NewSlot s;
  uint32 lane = slot_from_index_values(heap, values, isnull, *tid, &s);
  // Rows that logical replication applies are another cluster's work until activate() says otherwise.
  s.foreign = IsLogicalWorker();
  append_slots(map, lane, &s, 1, queue_id_of_segment(heap));
  // A bucket whose time has come may be read already: whoever looks for due messages begins again.
  if (shared) due_unknown();
  return false;
}

// Clears the slots of removed rows on one page. Shared lock to look, exclusive only where there is something to do.
int64 vacuum_page(Relation map, BlockNumber block, BufferAccessStrategy strategy, IndexBulkDeleteCallback callback, void* state, int64* live) {
  Buffer buf = ReadBufferExtended(map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  Page page = BufferGetPage(buf);
  int hits[kSlotsPerPage];
  uint64 inserters[kSlotsPerPage];
  int n = 0;
  if (page_is_map_page(page)) {
    for (int i = 0; i < map_slot_count(page); i++) {
      const Slot& s = map_slots(page)[i];
      ItemPointerData tid = slot_tid(s);
      if (!ItemPointerIsValid(&tid)) continue;
      if (callback(&tid, state)) {
        inserters[n] = slot_state(s) == SlotState::kInserted ? slot_xid(s) : 0;
        hits[n++] = i;
      } else {
        ++*live;
      }
    }
  }
  LockBuffer(buf, BUFFER_LOCK_UNLOCK);
  // A message that nobody has looked at since it was enqueued: rolled back, or committed and its row deleted by plain SQL.
  SettleKind unseen[kSlotsPerPage];
  for (int i = 0; i < n; i++)
    unseen[i] = inserters[i] != 0 && xid_status(inserters[i]) == XidStatus::kAborted ? SettleKind::kAborted : SettleKind::kPurged;
  if (n > 0) {
    LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
    Fragment fragments[kSlotsPerPage];
    map_log_begin(map);
    START_CRIT_SECTION();
    for (int i = 0; i < n; i++) {
      Slot* s = &map_slots(page)[hits[i]];
      // State and nonce of a settled slot stay: it goes on answering for its token.
      if (slot_state(*s) == SlotState::kInserted) set_slot_kind(*s, unseen[i]);
      else if (slot_state(*s) == SlotState::kReady || slot_state(*s) == SlotState::kClaimed) set_slot_kind(*s, SettleKind::kPurged);
      s->state = static_cast<uint8>(SlotState::kGone);
      memset(s->tid, 0, sizeof(s->tid));
      fragments[i] = Fragment{slot_offset(hits[i]), offsetof(Slot, id)};
    }
    map_log(map, buf, fragments, n);
    END_CRIT_SECTION();
    LockBuffer(buf, BUFFER_LOCK_UNLOCK);
  }
  ReleaseBuffer(buf);
  return n;
}

IndexBulkDeleteResult* bulk_delete(IndexVacuumInfo* info, IndexBulkDeleteResult* stats, IndexBulkDeleteCallback callback, void* state) {
  if (!stats) stats = static_cast<IndexBulkDeleteResult*>(palloc0(sizeof(IndexBulkDeleteResult)));
  BufferAccessStrategy strategy = info->strategy;
  BlockNumber blocks = RelationGetNumberOfBlocks(info->index);
  int64 live = 0;
  for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
    baton_vacuum_delay();
    stats->tuples_removed += static_cast<double>(vacuum_page(info->index, b, strategy, callback, state, &live));
  }
  stats->num_index_tuples = static_cast<double>(live);
  stats->num_pages = blocks;
  return stats;
}

IndexBulkDeleteResult* vacuum_cleanup(IndexVacuumInfo* info, IndexBulkDeleteResult* stats) {
  if (info->analyze_only) return stats;
  // Before relfrozenxid moves on and the commit log is cut off: write down what old transactions came to.
  resolve_old_xids(info->index, info->strategy);
  if (!stats) stats = static_cast<IndexBulkDeleteResult*>(palloc0(sizeof(IndexBulkDeleteResult)));
  stats->num_pages = RelationGetNumberOfBlocks(info->index);
  stats->estimated_count = true;
  stats->num_index_tuples = info->num_heap_tuples;
  return stats;
}

void cost_estimate(PlannerInfo*, IndexPath*, double, Cost* startup, Cost* total, Selectivity* selectivity, double* correlation, double* pages) {
  *startup = 1.0e10;
  *total = 1.0e10;
  *selectivity = 1.0;
  *correlation = 0.0;
  *pages = 1.0;
}

bytea* options(Datum reloptions, bool validate) {
  (void)reloptions;
  (void)validate;
  return nullptr;
}

bool validate(Oid) { return true; }

IndexScanDesc begin_scan(Relation map, int, int) {
  ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("lease map \"%s\" cannot be scanned", RelationGetRelationName(map))));
  pg_unreachable();
}

void rescan(IndexScanDesc, ScanKey, int, ScanKey, int) {}
void end_scan(IndexScanDesc) {}

void fill_routine(IndexAmRoutine* am) {
  am->type = T_IndexAmRoutine;
  am->amstrategies = 0;
  am->amsupport = 0;
  am->amcanmulticol = true;
  am->amoptionalkey = true;
  am->amstorage = false;
  am->amusemaintenanceworkmem = false;
  am->amparallelvacuumoptions = VACUUM_OPTION_NO_PARALLEL;
  am->amkeytype = InvalidOid;
  am->ambuild = build_map;
  am->ambuildempty = empty_build;
  am->aminsert = insert_row;
  am->ambulkdelete = bulk_delete;
  am->amvacuumcleanup = vacuum_cleanup;
  am->amcostestimate = cost_estimate;
  am->amoptions = options;
  am->amvalidate = validate;
  am->ambeginscan = begin_scan;
  am->amrescan = rescan;
  am->amendscan = end_scan;
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_lease_handler) {
  (void)fcinfo;
  IndexAmRoutine* am = baton::new_index_am_routine();
  baton::fill_routine(am);
  PG_RETURN_POINTER(am);
}
