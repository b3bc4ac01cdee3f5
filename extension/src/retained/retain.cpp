// See retain.hpp. Rows are put in below the executor, many to a log record and without SPI: this is the path of every
// acknowledgement of a queue with retention.
#include "retain.hpp"

#include "../pg/debug_point.hpp"
#include "../pg/shmem.hpp"

namespace baton {
namespace {

struct Copy {
  int64 id;
  TupleTableSlot* slot;
};

// Where the columns of a message row go.
constexpr int kPlaces[kRowColumns] = {
    kRetId,       kRetEnqueuedAt, kRetNotBefore,  kRetExpiresAt,    kRetQueueId,    kRetLane,    kRetGeneration, kRetFailures,
    kRetPriority, kRetMessageId,  kRetRoutingKey, kRetMessageClass, kRetPayloadRef, kRetHeaders, kRetPayload,    kRetPayloadBytes,
};

Datum worker_datum(uint32 number) {
  char name[64];
  worker_name(number, name, sizeof(name));
  return CStringGetTextDatum(name);
}

// False: there is no such row any more.
bool fill_copy(Relation heap, const Slot& s, Copy* copy) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(s);
  if (!ItemPointerIsValid(&tuple.t_self)) return false;
  Buffer buf;
  if (!fetch_heap_tuple(heap, SnapshotSelf, &tuple, &buf)) return false;
  HeapTuple row = heap_copytuple(&tuple);
  ReleaseBuffer(buf);
  Datum values[kRowColumns];
  bool nulls[kRowColumns];
  heap_deform_tuple(row, RelationGetDescr(heap), values, nulls);
  if (nulls[kRowId] || DatumGetInt64(values[kRowId]) != s.id) return false;
  for (int i = 0; i < kRowColumns; i++) {
    copy->slot->tts_values[kPlaces[i]] = values[i];
    copy->slot->tts_isnull[kPlaces[i]] = nulls[i];
  }
  copy->id = s.id;
  return true;
}

void set(TupleTableSlot* slot, int column, Datum value) {
  slot->tts_values[column] = value;
  slot->tts_isnull[column] = false;
}

void insert_index_entry(Relation table, Relation index, IndexInfo* info, TupleTableSlot* row) {
  Datum values[INDEX_MAX_KEYS];
  bool nulls[INDEX_MAX_KEYS];
  FormIndexDatum(info, row, nullptr, values, nulls);
  index_insert(index, values, nulls, &row->tts_tid, table, UNIQUE_CHECK_NO, false, info);
}

// Of an index over blocks only the ends of what a block was given matter.
void insert_index_entries(Relation table, const Copy* copies, int count) {
  List* indexes = RelationGetIndexList(table);
  ListCell* cell;
  foreach (cell, indexes) {
    Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);
    if (index->rd_rel->relam != BRIN_AM_OID)
      ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                      errmsg("index \"%s\" on \"%s\" is not supported", RelationGetRelationName(index), RelationGetRelationName(table)),
                      errhint("Drop it.")));
    IndexInfo* info = BuildIndexInfo(index);
    for (int i = 0; i < count;) {
      BlockNumber block = ItemPointerGetBlockNumber(&copies[i].slot->tts_tid);
      int low = i;
      int high = i;
      for (; i < count && ItemPointerGetBlockNumber(&copies[i].slot->tts_tid) == block; i++) {
        if (copies[i].id < copies[low].id) low = i;
        if (copies[i].id > copies[high].id) high = i;
      }
      insert_index_entry(table, index, info, copies[low].slot);
      if (high != low) insert_index_entry(table, index, info, copies[high].slot);
    }
    finish_index_inserts(index, info);
    index_close(index, NoLock);
  }
  list_free(indexes);
}

}  // namespace

void retain_rows(const Queue* queue, Relation heap, const Slot* slots, int count, TimestampTz settled_at) {
  if (queue->retention <= 0 || count == 0) return;
  TimestampTz drop_at = settled_at + Max(queue->retention, queue->replay_window);
  int number = retained_table(settled_at, drop_at);
  Oid oid = retained_table_oid(number);
  if (!OidIsValid(oid)) elog(ERROR, "table baton_data.retained_%d is missing", number);
  MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "baton retain", ALLOCSET_DEFAULT_SIZES);
  MemoryContext before = MemoryContextSwitchTo(scratch);
  Relation table = table_open(oid, RowExclusiveLock);
  // A copy is not reference counted: a hundred slots need not be entered in the resource owner and taken out again.
  TupleDesc desc = CreateTupleDescCopy(RelationGetDescr(table));
  auto* copies = static_cast<Copy*>(palloc(sizeof(Copy) * static_cast<Size>(count)));
  auto** rows = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * static_cast<Size>(count)));
  int n = 0;
  uint32 worker = 0;
  Datum worker_text = 0;
  for (int i = 0; i < count; i++) {
    const Slot& s = slots[i];
    copies[n].slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
    memset(copies[n].slot->tts_isnull, true, static_cast<Size>(desc->natts));
    if (!fill_copy(heap, s, &copies[n])) continue;
    if (s.worker != 0 && s.worker != worker) {
      worker = s.worker;
      worker_text = worker_datum(worker);
    }
    set(copies[n].slot, kRetQueueId, Int32GetDatum(queue->id));
    set(copies[n].slot, kRetSettledAt, TimestampTzGetDatum(settled_at));
    set(copies[n].slot, kRetDropAt, TimestampTzGetDatum(drop_at));
    set(copies[n].slot, kRetGeneration, Int64GetDatum(s.generation));
    set(copies[n].slot, kRetFailures, Int32GetDatum(s.failures));
    if (s.worker != 0) set(copies[n].slot, kRetWorker, worker_text);
    ExecStoreVirtualTuple(copies[n].slot);
    rows[n] = copies[n].slot;
    n++;
  }
  debug_here("retain-rows");
  if (n > 0) {
    heap_multi_insert(table, rows, n, GetCurrentCommandId(true), HEAP_INSERT_SKIP_FSM, nullptr);
    insert_index_entries(table, copies, n);
  }
  table_close(table, NoLock);
  MemoryContextSwitchTo(before);
  MemoryContextDelete(scratch);
}

}  // namespace baton
