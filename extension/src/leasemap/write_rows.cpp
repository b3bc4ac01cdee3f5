// See write_rows.hpp.
#include "write_rows.hpp"

#include "../core/wheel.hpp"
#include "../pg/clock.hpp"
#include "../pg/guc.hpp"
#include "../pg/shmem.hpp"
#include "ring.hpp"
#include "xact.hpp"

namespace baton {
namespace {

constexpr int kChunk = 500;  // rows per multi-insert

void insert_rows_one(Relation heap, const Envelope& row, NewSlot* slot) {
  TupleDesc desc = RelationGetDescr(heap);
  auto* values = static_cast<Datum*>(palloc0(sizeof(Datum) * static_cast<Size>(desc->natts)));
  auto* nulls = static_cast<bool*>(palloc(static_cast<Size>(desc->natts)));
  memset(nulls, true, static_cast<Size>(desc->natts));
  memcpy(values, row.values, sizeof(row.values));
  memcpy(nulls, row.nulls, sizeof(row.nulls));
  HeapTuple tuple = heap_form_tuple(desc, values, nulls);
  heap_insert(heap, tuple, GetCurrentCommandId(true), HEAP_INSERT_SKIP_FSM, nullptr);
  slot->tid = tuple->t_self;
  heap_freetuple(tuple);
  pfree(values);
  pfree(nulls);
}

void insert_rows_many(Relation heap, Envelope** rows, int count, NewSlot* slots) {
  // A copy is not reference counted: hundreds of slots need not be entered in the resource owner and taken out again.
  TupleDesc desc = CreateTupleDescCopy(RelationGetDescr(heap));
  auto** tuple_slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * static_cast<Size>(count)));
  for (int i = 0; i < count; i++) {
    TupleTableSlot* s = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
    memset(s->tts_isnull, true, static_cast<Size>(desc->natts));
    memcpy(s->tts_values, rows[i]->values, sizeof(rows[i]->values));
    memcpy(s->tts_isnull, rows[i]->nulls, sizeof(rows[i]->nulls));
    ExecStoreVirtualTuple(s);
    tuple_slots[i] = s;
  }
  heap_multi_insert(heap, tuple_slots, count, GetCurrentCommandId(true), HEAP_INSERT_SKIP_FSM, nullptr);
  for (int i = 0; i < count; i++) {
    slots[i].tid = tuple_slots[i]->tts_tid;
    ExecDropSingleTupleTableSlot(tuple_slots[i]);
  }
  pfree(tuple_slots);
  FreeTupleDesc(desc);
}

void insert_rows(Relation heap, Envelope** rows, int count, NewSlot* slots) {
  if (count == 1)
    insert_rows_one(heap, *rows[0], slots);
  else
    insert_rows_many(heap, rows, count, slots);
}

// The relation cache has the list since the map was found; it is made again only after an invalidation.
bool has_other_indexes(Relation heap) {
  if (heap->rd_indexvalid) return list_length(heap->rd_indexlist) > 1;
  List* indexes = RelationGetIndexList(heap);
  bool more = list_length(indexes) > 1;
  list_free(indexes);
  return more;
}

bool is_key(const Form_pg_index index) {
  if (index->indnatts > 2 || index->indnatts < 1) return false;
  for (int i = 0; i < index->indnatts; i++)
    if (index->indkey.values[i] != kRowId + 1 && index->indkey.values[i] != kRowQueueId + 1) return false;
  return true;
}

// A replicable queue has a primary key on id beside the map, a shared table one on (queue_id, id). Any other index would
// silently miss what is enqueued.
void insert_other_indexes(const Segment& segment, Envelope** rows, const NewSlot* slots, int count) {
  List* indexes = RelationGetIndexList(segment.heap);
  ListCell* lc;
  foreach (lc, indexes) {
    if (lfirst_oid(lc) == RelationGetRelid(segment.map)) continue;
    Relation index = index_open(lfirst_oid(lc), RowExclusiveLock);
    Form_pg_index form = index->rd_index;
    if (!is_key(form))
      ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                      errmsg("index \"%s\" on segment \"%s\" is not supported", RelationGetRelationName(index), RelationGetRelationName(segment.heap)),
                      errhint("Drop it: a segment has its lease map and, if replicable, a primary key.")));
    IndexInfo* info = BuildIndexInfo(index);
    for (int i = 0; i < count; i++) {
      Datum values[2];
      bool nulls[2];
      for (int k = 0; k < form->indnatts; k++) {
        values[k] = rows[i]->values[form->indkey.values[k] - 1];
        nulls[k] = rows[i]->nulls[form->indkey.values[k] - 1];
      }
      ItemPointerData tid = slots[i].tid;
      index_insert(index, values, nulls, &tid, segment.heap, form->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
    }
    pfree(info);
    index_close(index, NoLock);
  }
  list_free(indexes);
}

void fill_new_slot(NewSlot* s, const Envelope& row) {
  s->id = DatumGetInt64(row.values[kRowId]);
  s->key_hash = row.key_hash;
  s->generation = row.generation;
  s->failures = row.failures;
  s->foreign = false;
  s->expires = !row.nulls[kRowExpiresAt];
  s->due = row.due;
  s->first = row.first;
  s->claim = row.claim;
}

// The rows of one chunk into an opened segment. Rows of one lane that follow each other get their slots together. Returns
// true if the map has grown by a page.
bool write_chunk(const Segment& segment, int32 queue_id, Envelope** rows, const uint32* lanes, int n, NewSlot* slots) {
  insert_rows(segment.heap, rows, n, slots);
  if (has_other_indexes(segment.heap)) insert_other_indexes(segment, rows, slots, n);
  bool extended = false;
  for (int i = 0; i < n;) {
    int run = 1;
    while (i + run < n && lanes[i + run] == lanes[i]) run++;
    extended |= append_slots(segment.map, lanes[i], slots + i, run, queue_id);
    i += run;
  }
  return extended;
}

struct Bucketed {
  Envelope* row;
  int table;
  uint32 lane;
};

int by_bucket(const void* a, const void* b) {
  auto* x = static_cast<const Bucketed*>(a);
  auto* y = static_cast<const Bucketed*>(b);
  if (x->table != y->table) return x->table < y->table ? -1 : 1;
  if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
  if (x->row->due != y->row->due) return x->row->due < y->row->due ? -1 : 1;
  return x->row < y->row ? -1 : x->row > y->row ? 1 : 0;
}

// Neighbours in a bucket are written together.
void write_bucketed(const Queue* queue, Envelope** rows, int count, TimestampTz now) {
  auto* sorted = static_cast<Bucketed*>(palloc(sizeof(Bucketed) * static_cast<Size>(count)));
  for (int i = 0; i < count; i++) {
    int table = wheel_table(now, rows[i]->due);
    sorted[i] = Bucketed{rows[i], table, wheel_lane(table, rows[i]->due)};
  }
  qsort(sorted, static_cast<size_t>(count), sizeof(Bucketed), by_bucket);
  for (int i = 0; i < count; i++) rows[i] = sorted[i].row;
  for (int i = 0; i < count;) {
    int n = 1;
    while (i + n < count && sorted[i + n].table == sorted[i].table) n++;
    write_shared_rows(queue, SharedTable{SharedKind::kLater, sorted[i].table}, rows + i, n);
    i += n;
  }
  pfree(sorted);
}

}  // namespace

bool waits_in_bucket(const Queue* queue, TimestampTz due, TimestampTz now) {
  return queue->has_buckets && due - now > static_cast<int64>(soon_ms) * 1000;
}

void write_shared_rows(const Queue* queue, const SharedTable& table, Envelope** rows, int count) {
  Oid oid = shared_table_oid(table.kind, table.number);
  if (!OidIsValid(oid)) elog(ERROR, "shared table %d of pg_baton is missing", table.number);
  auto* slots = static_cast<NewSlot*>(palloc(sizeof(NewSlot) * static_cast<Size>(Min(count, kChunk))));
  uint32 lanes[kChunk];
  Segment segment = open_segment(oid, RowExclusiveLock);
  TimestampTz earliest = kNever;
  for (int done = 0; done < count;) {
    int n = Min(kChunk, count - done);
    for (int i = 0; i < n; i++) {
      Envelope* row = rows[done + i];
      row->values[kRowQueueId] = Int32GetDatum(queue->id);
      row->nulls[kRowQueueId] = false;
      fill_new_slot(&slots[i], *row);
      slots[i].key_hash = static_cast<uint32>(queue->id);
      lanes[i] = shared_lane(table, queue->id, slots[i].id, row->due);
      earliest = Min(earliest, row->due);
    }
    (void)write_chunk(segment, 0, rows + done, lanes, n, slots);
    done += n;
  }
  close_segment(segment, NoLock);
  pfree(slots);
  if (table.kind == SharedKind::kLater) due_noted(earliest);
}

void write_rows(Queue* queue, Envelope* rows, int count, int64* ids) {
  require_durability(queue->durability);
  TimestampTz now = clock_now();
  int chunk = Min(count, kChunk);
  auto* slots = static_cast<NewSlot*>(palloc(sizeof(NewSlot) * static_cast<Size>(chunk)));
  auto** near_rows = static_cast<Envelope**>(palloc(sizeof(Envelope*) * static_cast<Size>(chunk)));
  auto** later_rows = static_cast<Envelope**>(palloc(sizeof(Envelope*) * static_cast<Size>(chunk)));
  uint32 lanes[kChunk];
  for (int done = 0; done < count;) {
    int n = Min(kChunk, count - done);
    // Before the sequence is touched: whoever holds a segment's lock keeps the queue from being dropped.
    int number;
    Segment segment = open_write_segment(queue, &number);
    int near_count = 0;
    int later_count = 0;
    for (int i = 0; i < n; i++) {
      Envelope* row = &rows[done + i];
      if (row->nulls[kRowId]) row->values[kRowId] = Int64GetDatum(nextval_internal(queue->id_sequence, false));
      row->nulls[kRowId] = false;
      if (ids) ids[done + i] = DatumGetInt64(row->values[kRowId]);
      if (row->due != 0 && !row->claim && waits_in_bucket(queue, row->due, now)) {
        later_rows[later_count++] = row;
        continue;
      }
      fill_new_slot(&slots[near_count], *row);
      lanes[near_count] = row->lane;
      near_rows[near_count++] = row;
    }
    bool extended = near_count > 0 && write_chunk(segment, queue->id, near_rows, lanes, near_count, slots);
    if (later_count > 0) write_bucketed(queue, later_rows, later_count, now);
    if (extended && segment_size(segment) >= queue->segment_bytes) move_on(queue, segment, number);
    close_segment(segment, NoLock);
    done += n;
  }
  pfree(slots);
  pfree(near_rows);
  pfree(later_rows);
}

}  // namespace baton
