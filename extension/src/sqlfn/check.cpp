// baton.check(queue): every slot and every row of a queue against each other. Sound means no row.
//
// It runs beside everything else and says nothing wrong. One pass takes a snapshot S and then reads the map, so what it
// sees can differ innocently by whatever committed in between: a message enqueued after S has a slot and no row, one
// settled after S has a row and a finished slot. Whatever a pass finds is therefore only a suspect; a second pass with
// a newer snapshot looks at the same place again, and only what is still wrong there is reported: an outcome that the
// first pass read from the map is older than the second's snapshot. Rows that S sees cannot be vacuumed while it is
// held, so that no row pointer changes its meaning within a pass.
//
// Memory: about 50 bytes for each row of one segment.
#include "../core/wheel.hpp"
#include "../leasemap/row.hpp"
#include "../leasemap/shared_tables.hpp"
#include "as_owner.hpp"
#include "survey.hpp"

namespace baton {

namespace {

enum class Problem : int32 {
  kRowWithoutSlot,
  kSlotWithoutRow,
  kTwoSlots,
  kSettledWithRow,
  kIdMismatch,
  kTwiceInQueue,
  kQuarantinedToo,
  kBadSlot,
  kUnreachablePage,
  kNoMap,
  kUpdatePossible,
  kBehindSequence,
};

const char* problem_word(Problem p) {
  switch (p) {
    case Problem::kRowWithoutSlot:
      return "row_without_slot";
    case Problem::kSlotWithoutRow:
      return "slot_without_row";
    case Problem::kTwoSlots:
      return "two_slots_for_one_row";
    case Problem::kSettledWithRow:
      return "settled_slot_with_row";
    case Problem::kIdMismatch:
      return "id_mismatch";
    case Problem::kTwiceInQueue:
      return "message_twice_in_queue";
    case Problem::kQuarantinedToo:
      return "quarantined_and_unsettled";
    case Problem::kBadSlot:
      return "bad_slot";
    case Problem::kUnreachablePage:
      return "unreachable_page";
    case Problem::kNoMap:
      return "no_lease_map";
    case Problem::kUpdatePossible:
      return "update_not_refused";
    default:
      return "id_beyond_sequence";
  }
}

// A suspect is known by its place; zeroed before it is filled, since it is a hash key.
struct SuspectKey {
  Problem problem;
  int32 segment;
  int64 id;
  uint32 block;  // of the slot, or of the row where there is no slot
  uint32 offset;
};

struct Suspect {
  SuspectKey key;
  ItemPointerData tid;
  Slot slot;
};

struct RowEntry {
  ItemPointerData tid;  // key
  int64 id;
  int32 open_slots;
  bool settled_slot;
  Slot settled;
  Place settled_place;
};

struct IdEntry {
  int64 id;  // key
  int32 segment;
};

// Numbers of the tables that a pass goes over: the queue's segments, and from here on the shared tables.
constexpr int kFirstShared = kMaxSegments;
constexpr int kSharedTables = kWheelTables + kLongTables;

struct Pass {
  const Queue* queue;
  int segment;
  bool is_shared;  // holds other queues' messages too
  HTAB* suspects;
  HTAB* rows;
  HTAB* ids;  // unsettled messages of all segments
  bool* reached;
  BlockNumber blocks;
  int64 max_id;
};

HTAB* make_table(const char* name, Size key, Size entry, MemoryContext context) {
  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = key;
  ctl.entrysize = entry;
  ctl.hcxt = context;
  return hash_create(name, 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void suspect(Pass* p, Problem problem, int64 id, uint32 block, uint32 offset, const ItemPointerData* tid,
             const Slot* slot) {
  SuspectKey key;
  memset(&key, 0, sizeof(key));
  key.problem = problem;
  key.segment = p->segment;
  key.id = id;
  key.block = block;
  key.offset = offset;
  Suspect* s = static_cast<Suspect*>(hash_search(p->suspects, &key, HASH_ENTER, nullptr));
  ItemPointerSetInvalid(&s->tid);
  if (tid != nullptr) s->tid = *tid;
  memset(&s->slot, 0, sizeof(s->slot));
  if (slot != nullptr) s->slot = *slot;
}

void read_rows(Pass* p, Relation heap) {
  TableScanDesc scan = begin_heap_scan(heap, GetActiveSnapshot());
  TupleTableSlot* row = table_slot_create(heap, nullptr);
  while (table_scan_getnextslot(scan, ForwardScanDirection, row)) {
    CHECK_FOR_INTERRUPTS();
    bool null;
    if (p->is_shared && DatumGetInt32(slot_getattr(row, kRowQueueId + 1, &null)) != p->queue->id) continue;
    Datum id = slot_getattr(row, kRowId + 1, &null);
    RowEntry* r = static_cast<RowEntry*>(hash_search(p->rows, &row->tts_tid, HASH_ENTER, nullptr));
    r->id = null ? 0 : DatumGetInt64(id);
    r->open_slots = 0;
    r->settled_slot = false;
    p->max_id = Max(p->max_id, r->id);
  }
  ExecDropSingleTupleTableSlot(row);
  table_endscan(scan);
}

// Follows every lane's chain from the directory.
void walk_chains(Pass* p, const Segment& segment) {
  LaneDirectoryEntry* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
  int count = list_lanes(segment.map, lanes, kMaxLanes);
  p->blocks = RelationGetNumberOfBlocks(segment.map);
  p->reached = static_cast<bool*>(
      MemoryContextAllocExtended(CurrentMemoryContext, p->blocks + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO));
  for (int i = 0; i < count; i++) {
    uint32 ordinal = 0;
    for (BlockNumber b = lanes[i].first; BlockNumberIsValid(b) && b < p->blocks; ordinal++) {
      CHECK_FOR_INTERRUPTS();
      Buffer buf = ReadBuffer(segment.map, b);
      LockBuffer(buf, BUFFER_LOCK_SHARE);
      Page page = BufferGetPage(buf);
      bool good = page_is_map_page(page) && map_tail(page)->lane == lanes[i].lane &&
                  map_tail(page)->ordinal == ordinal && !p->reached[b];
      BlockNumber next = good ? map_tail(page)->next : InvalidBlockNumber;
      UnlockReleaseBuffer(buf);
      if (!good) break;
      p->reached[b] = true;
      b = next;
    }
  }
  pfree(lanes);
}

bool slot_makes_sense(const SurveySlot& s) {
  if (s.slot.state > static_cast<uint8>(SlotState::kGone)) return false;
  if (slot_kind(s.slot) > kLastSettleKind) return false;
  if (slot_has_open_xid(s.slot) && slot_xid(s.slot) == 0) return false;
  if (s.phase == SlotPhase::kHeld || s.phase == SlotPhase::kLapsed || s.phase == SlotPhase::kSettling) {
    // an exhausted or expired message is set aside without a claim
    bool claimless = s.phase == SlotPhase::kSettling &&
                     (slot_kind(s.slot) == SettleKind::kQuarantined || slot_kind(s.slot) == SettleKind::kExpired ||
                      slot_kind(s.slot) == SettleKind::kMoved || slot_kind(s.slot) == SettleKind::kPurged);
    if (!claimless && (s.slot.generation == 0 || s.slot.nonce == 0)) return false;
  }
  return true;
}

bool look_at_slot(const SurveySlot& s, const Segment&, void* arg) {
  Pass* p = static_cast<Pass*>(arg);
  ItemPointerData tid = slot_tid(s.slot);
  uint32 block = s.place.block;
  uint32 index = s.place.index;
  // A page that was added while the chains were walked is beyond p->blocks.
  if (block < p->blocks && !p->reached[block]) suspect(p, Problem::kUnreachablePage, 0, block, 0, nullptr, nullptr);
  if (p->is_shared && static_cast<int32>(s.slot.key_hash) != p->queue->id) return true;
  if (!slot_makes_sense(s)) suspect(p, Problem::kBadSlot, s.slot.id, block, index, &tid, &s.slot);
  RowEntry* row =
      ItemPointerIsValid(&tid) ? static_cast<RowEntry*>(hash_search(p->rows, &tid, HASH_FIND, nullptr)) : nullptr;
  if (s.phase == SlotPhase::kNothing) {
    if (row != nullptr && row->id == s.slot.id) {
      row->settled_slot = true;
      row->settled = s.slot;
      row->settled_place = s.place;
    }
    return true;
  }
  bool open = s.phase == SlotPhase::kPending || s.phase == SlotPhase::kSettling;
  if (!open) {
    bool found;
    IdEntry* twin = static_cast<IdEntry*>(hash_search(p->ids, &s.slot.id, HASH_ENTER, &found));
    if (found) suspect(p, Problem::kTwiceInQueue, s.slot.id, block, index, &tid, &s.slot);
    twin->segment = p->segment;
  }
  if (row == nullptr) {
    // Not committed yet, or being settled by this very transaction: no row to be seen.
    if (s.phase == SlotPhase::kPending || (s.phase == SlotPhase::kSettling && s.status == XidStatus::kMine))
      return true;
    suspect(p, Problem::kSlotWithoutRow, s.slot.id, block, index, &tid, &s.slot);
    return true;
  }
  if (row->id != s.slot.id) {
    suspect(p, Problem::kIdMismatch, s.slot.id, block, index, &tid, &s.slot);
    return true;
  }
  if (++row->open_slots > 1) suspect(p, Problem::kTwoSlots, s.slot.id, block, index, &tid, &s.slot);
  return true;
}

bool refuses_update(Relation heap) {
  TriggerDesc* d = heap->trigdesc;
  if (d == nullptr) return false;
  for (int i = 0; i < d->numtriggers; i++) {
    const Trigger& t = d->triggers[i];
    if (!TRIGGER_FOR_UPDATE(t.tgtype) || !TRIGGER_FOR_BEFORE(t.tgtype) || !TRIGGER_FOR_ROW(t.tgtype)) continue;
    char* name = get_func_name(t.tgfoid);
    if (name != nullptr && strcmp(name, "refuse_update") == 0 && t.tgenabled != TRIGGER_DISABLED) return true;
  }
  return false;
}

// InvalidOid: this database's SQL has no such table.
Oid table_of(const Queue& q, int number) {
  if (number < kFirstShared) return q.heap[number];
  int n = number - kFirstShared;
  return n < kWheelTables ? shared_table_oid(SharedKind::kLater, n) : shared_table_oid(SharedKind::kLong, n - kWheelTables);
}

void pass_over_segment(Pass* p) {
  MemoryContext mine = AllocSetContextCreate(CurrentMemoryContext, "baton check segment", ALLOCSET_DEFAULT_SIZES);
  MemoryContext old = MemoryContextSwitchTo(mine);
  Oid oid = table_of(*p->queue, p->segment);
  Relation heap = table_open(oid, AccessShareLock);
  bool has_map = OidIsValid(find_map(heap));
  if (!has_map) suspect(p, Problem::kNoMap, 0, 0, 0, nullptr, nullptr);
  if (!refuses_update(heap)) suspect(p, Problem::kUpdatePossible, 0, 0, 0, nullptr, nullptr);
  if (has_map) {
    Segment segment = open_segment(oid, AccessShareLock);
    PushActiveSnapshot(GetLatestSnapshot());
    p->rows = make_table("baton check rows", sizeof(ItemPointerData), sizeof(RowEntry), mine);
    read_rows(p, heap);
    walk_chains(p, segment);
    survey_segment(segment, look_at_slot, p);
    HASH_SEQ_STATUS seq;
    hash_seq_init(&seq, p->rows);
    while (RowEntry* r = static_cast<RowEntry*>(hash_seq_search(&seq))) {
      if (r->open_slots > 0) continue;
      if (r->settled_slot)
        suspect(p, Problem::kSettledWithRow, r->id, r->settled_place.block, r->settled_place.index, &r->tid,
                &r->settled);
      else
        suspect(p, Problem::kRowWithoutSlot, r->id, ItemPointerGetBlockNumber(&r->tid),
                ItemPointerGetOffsetNumber(&r->tid), &r->tid, nullptr);
    }
    PopActiveSnapshot();
    close_segment(segment, AccessShareLock);
  }
  table_close(heap, AccessShareLock);
  MemoryContextSwitchTo(old);
  MemoryContextDelete(mine);
}

void pass_over_queue(const Queue* q, HTAB* suspects) {
  Pass p;
  memset(&p, 0, sizeof(p));
  p.queue = q;
  p.suspects = suspects;
  p.ids = make_table("baton check ids", sizeof(int64), sizeof(IdEntry), CurrentMemoryContext);
  for (p.segment = 0; p.segment < q->segment_count; p.segment++) pass_over_segment(&p);
  p.is_shared = true;
  for (p.segment = kFirstShared; p.segment < kFirstShared + kSharedTables; p.segment++)
    if (OidIsValid(table_of(*q, p.segment))) pass_over_segment(&p);
  p.is_shared = false;
  p.segment = 0;
  run(psprintf("SELECT id FROM baton_data.quarantined WHERE queue_id = %d", q->id));
  for (uint64 i = 0; i < SPI_tuptable->numvals; i++) {
    bool null;
    int64 id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &null));
    if (hash_search(p.ids, &id, HASH_FIND, nullptr) != nullptr)
      suspect(&p, Problem::kQuarantinedToo, id, 0, 0, nullptr, nullptr);
  }
  SPI_freetuptable(SPI_tuptable);
  hash_destroy(p.ids);
  int64 last = 0;
  fetch_int64(psprintf("SELECT last_value FROM baton_data.q%d_id", q->id), &last);
  if (p.max_id > last) suspect(&p, Problem::kBehindSequence, p.max_id, 0, 0, nullptr, nullptr);
}

const char* describe(const Suspect* s) {
  switch (s->key.problem) {
    case Problem::kRowWithoutSlot:
      return psprintf("row (%u,%u) will never be handed out; REINDEX of the lease map makes its slot", s->key.block,
                      s->key.offset);
    case Problem::kUnreachablePage:
      return psprintf("page %u of the lease map has slots and is in no lane's chain", s->key.block);
    case Problem::kNoMap:
      return "there is no valid index of access method baton_lease";
    case Problem::kUpdatePossible:
      return "the trigger refuse_update is missing or disabled";
    case Problem::kQuarantinedToo:
      return "the message is quarantined and in a segment at once";
    case Problem::kBehindSequence:
      return "a later message will get an id that is taken";
    default:
      return psprintf("slot %u,%u: state %u kind %u generation %u tid (%u,%u)", s->key.block, s->key.offset,
                      s->slot.state, s->slot.kind & kKindMask, s->slot.generation,
                      ItemPointerGetBlockNumberNoCheck(&s->tid), ItemPointerGetOffsetNumberNoCheck(&s->tid));
  }
}

}  // namespace

}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_check)
{
  const Queue* found = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  require_look(found);
  require_segments(found);
  Queue q = *found;
  InitMaterializedSRF(fcinfo, 0);
  ReturnSetInfo* rsinfo = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);

  Elevated e = become_extension_owner();
  HTAB* first = make_table("baton check, first pass", sizeof(SuspectKey), sizeof(Suspect), CurrentMemoryContext);
  pass_over_queue(&q, first);
  if (hash_get_num_entries(first) > 0) {
    HTAB* second = make_table("baton check, second pass", sizeof(SuspectKey), sizeof(Suspect), CurrentMemoryContext);
    pass_over_queue(&q, second);
    HASH_SEQ_STATUS seq;
    hash_seq_init(&seq, second);
    while (Suspect* s = static_cast<Suspect*>(hash_seq_search(&seq))) {
      if (hash_search(first, &s->key, HASH_FIND, nullptr) == nullptr) continue;
      char name[NAMEDATALEN];
      if (s->key.segment < kFirstShared)
        segment_name(q.id, s->key.segment, name);
      else
        strlcpy(name, get_rel_name(table_of(q, s->key.segment)), NAMEDATALEN);
      Datum values[] = {CStringGetTextDatum(name), CStringGetTextDatum(problem_word(s->key.problem)),
                        Int64GetDatum(s->key.id), CStringGetTextDatum(describe(s))};
      bool nulls[] = {false, false, s->key.id == 0, false};
      tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
    }
  }
  become_caller(e);
  return static_cast<Datum>(0);
}
