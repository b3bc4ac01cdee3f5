// Building a map from its table: at creation, REINDEX, VACUUM FULL, restore from a dump. Slots come in order of lane and
// id; leases and failures are forgotten, a new epoch fences every old token.
#include "map.hpp"
#include "row.hpp"

namespace baton {
namespace {

struct BuildState {
  Tuplesortstate* sort;
  TupleTableSlot* slot;
  double rows;
  Relation heap;
};

constexpr int kBuildColumns = 8;  // lane, id, tid, generation, failures, due, key_hash, expires

TupleDesc build_descriptor() {
  TupleDesc desc = CreateTemplateTupleDesc(kBuildColumns);
  TupleDescInitEntry(desc, 1, "lane", INT4OID, -1, 0);
  TupleDescInitEntry(desc, 2, "id", INT8OID, -1, 0);
  TupleDescInitEntry(desc, 3, "tid", TIDOID, -1, 0);
  TupleDescInitEntry(desc, 4, "generation", INT4OID, -1, 0);
  TupleDescInitEntry(desc, 5, "failures", INT4OID, -1, 0);
  TupleDescInitEntry(desc, 6, "due", INT8OID, -1, 0);
  TupleDescInitEntry(desc, 7, "key_hash", INT4OID, -1, 0);
  TupleDescInitEntry(desc, 8, "expires", BOOLOID, -1, 0);
  return finish_descriptor(desc);
}

void collect_row(Relation, ItemPointer tid, Datum* values, bool* isnull, bool alive, void* arg) {
  // Rows that are dead to everyone new but still in some old snapshot are settled work: no slot.
  if (!alive) return;
  auto* b = static_cast<BuildState*>(arg);
  NewSlot s;
  uint32 lane = slot_from_index_values(b->heap, values, isnull, *tid, &s);
  TupleTableSlot* out = b->slot;
  ExecClearTuple(out);
  memset(out->tts_isnull, false, kBuildColumns * sizeof(bool));
  out->tts_values[0] = Int32GetDatum(static_cast<int32>(lane));
  out->tts_values[1] = Int64GetDatum(s.id);
  ItemPointerData copy = *tid;
  out->tts_values[2] = PointerGetDatum(&copy);
  out->tts_values[3] = Int32GetDatum(static_cast<int32>(s.generation));
  out->tts_values[4] = Int32GetDatum(s.failures);
  out->tts_values[5] = Int64GetDatum(s.due);
  out->tts_values[6] = Int32GetDatum(static_cast<int32>(s.key_hash));
  out->tts_values[7] = BoolGetDatum(s.expires);
  ExecStoreVirtualTuple(out);
  tuplesort_puttupleslot(b->sort, out);
  b->rows++;
}

// The page being filled: stays locked until its successor is known, so that its link is written with it.
struct OpenPage {
  Buffer buf;
  GenericXLogState* state;
  Page page;
  uint32 lane;
  uint32 ordinal;
};

void start_page(Relation map, OpenPage* p, uint32 lane, uint32 ordinal) {
  p->buf = extend_relation(map);
  p->state = GenericXLogStart(map);
  p->page = GenericXLogRegisterBuffer(p->state, p->buf, GENERIC_XLOG_FULL_IMAGE);
  p->lane = lane;
  p->ordinal = ordinal;
  init_map_page(p->page, lane, ordinal);
}

void finish_page(OpenPage* p, BlockNumber next) {
  map_tail(p->page)->next = next;
  GenericXLogFinish(p->state);
  UnlockReleaseBuffer(p->buf);
  p->buf = InvalidBuffer;
}

void add_slot(Relation map, OpenPage* p, MapMeta* meta, uint32 lane, TupleTableSlot* in) {
  if (BufferIsValid(p->buf) && (p->lane != lane || map_slot_count(p->page) == kSlotsPerPage)) {
    OpenPage full = *p;
    bool same = full.lane == lane;
    start_page(map, p, lane, same ? full.ordinal + 1 : 0);
    finish_page(&full, same ? BufferGetBlockNumber(p->buf) : InvalidBlockNumber);
  } else if (!BufferIsValid(p->buf)) {
    start_page(map, p, lane, 0);
  }
  BlockNumber block = BufferGetBlockNumber(p->buf);
  if (meta->lane_count == 0 || meta->lanes[meta->lane_count - 1].lane != lane) {
    if (meta->lane_count >= static_cast<uint32>(kMaxLanes))
      ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("segment has more than %d lanes, the limit", kMaxLanes)));
    meta->lanes[meta->lane_count++] = LaneDirectoryEntry{lane, block, block};
  }
  meta->lanes[meta->lane_count - 1].last = block;
  int n = map_slot_count(p->page);
  Slot* s = &map_slots(p->page)[n];
  s->id = DatumGetInt64(in->tts_values[1]);
  set_slot_tid(*s, *reinterpret_cast<ItemPointer>(DatumGetPointer(in->tts_values[2])));
  s->generation = static_cast<uint32>(DatumGetInt32(in->tts_values[3]));
  s->failures = static_cast<uint16>(DatumGetInt32(in->tts_values[4]));
  s->deadline = DatumGetInt64(in->tts_values[5]);
  s->key_hash = static_cast<uint32>(DatumGetInt32(in->tts_values[6]));
  s->state = static_cast<uint8>(SlotState::kReady);
  s->kind = DatumGetBool(in->tts_values[7]) ? kExpiresFlag : 0;
  reinterpret_cast<PageHeader>(p->page)->pd_lower = slot_offset(n + 1);
}

void write_slots(Relation map, BuildState* b) {
  // The metapage is known only at the end: its image is kept here meanwhile.
  auto* meta = static_cast<MapMeta*>(palloc0(BLCKSZ));
  OpenPage page{InvalidBuffer, nullptr, nullptr, 0, 0};
  while (tuplesort_gettupleslot(b->sort, true, false, b->slot, nullptr)) {
    CHECK_FOR_INTERRUPTS();
    slot_getallattrs(b->slot);
    add_slot(map, &page, meta, static_cast<uint32>(DatumGetInt32(b->slot->tts_values[0])), b->slot);
  }
  if (BufferIsValid(page.buf)) finish_page(&page, InvalidBlockNumber);
  Buffer buf = ReadBuffer(map, kMetaBlock);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  GenericXLogState* state = GenericXLogStart(map);
  Page target = GenericXLogRegisterBuffer(state, buf, 0);
  MapMeta* m = map_meta(target);
  m->lane_count = meta->lane_count;
  memcpy(m->lanes, meta->lanes, meta->lane_count * sizeof(LaneDirectoryEntry));
  // A segment that holds rows counts as opened; ties in the order are broken by its number.
  if (meta->lane_count > 0) m->open_seq = 1;
  reinterpret_cast<PageHeader>(target)->pd_lower =
      static_cast<LocationIndex>(reinterpret_cast<char*>(&m->lanes[m->lane_count]) - reinterpret_cast<char*>(target));
  GenericXLogFinish(state);
  UnlockReleaseBuffer(buf);
}

}  // namespace

IndexBuildResult* build_map(Relation heap, Relation map, IndexInfo* info) {
  if (RelationGetNumberOfBlocks(map) != 0) elog(ERROR, "lease map \"%s\" already contains data", RelationGetRelationName(map));
  create_meta(map);
  BuildState b;
  TupleDesc desc = build_descriptor();
  AttrNumber columns[] = {1, 2};
  Oid operators[] = {Int4LessOperator, Int8LessOperator};
  Oid collations[] = {InvalidOid, InvalidOid};
  bool nulls_first[] = {false, false};
  b.sort = tuplesort_begin_heap(desc, 2, columns, operators, collations, nulls_first, maintenance_work_mem, nullptr, TUPLESORT_NONE);
  b.slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
  b.rows = 0;
  b.heap = heap;
  double heap_tuples = table_index_build_scan(heap, map, info, true, false, collect_row, &b, nullptr);
  if (b.rows > 0) {
    tuplesort_performsort(b.sort);
    TupleTableSlot* sorted = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
    TupleTableSlot* filling = b.slot;
    b.slot = sorted;
    write_slots(map, &b);
    b.slot = filling;
    ExecDropSingleTupleTableSlot(sorted);
    ereport(WARNING, (errmsg("lease map \"%s\" was built anew: %.0f unsettled messages are ready again", RelationGetRelationName(map), b.rows),
                      errdetail("Their leases, failures and tokens are forgotten; every earlier token is refused (QB008).")));
  }
  tuplesort_end(b.sort);
  ExecDropSingleTupleTableSlot(b.slot);
  auto* result = static_cast<IndexBuildResult*>(palloc0(sizeof(IndexBuildResult)));
  result->heap_tuples = heap_tuples;
  result->index_tuples = b.rows;
  return result;
}

}  // namespace baton
