// See enqueue_rows.hpp. Order: rows first, then slots, so that no slot ever points to a row that was never written.
#include "enqueue_rows.hpp"

#include "../core/envelope.hpp"
#include "../leasemap/ring.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"

namespace baton {
namespace {

constexpr int kChunk = 500;  // rows per multi-insert

void check_size(const char* field, Datum value, int max_bytes) {
  Size n = toast_raw_datum_size(value) - VARHDRSZ;
  if (n > static_cast<Size>(max_bytes))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is too large", field),
                    errdetail("It has %zu bytes; the limit of the queue is %d.", n, max_bytes),
                    errhint("Store large content elsewhere and pass its address as payload_ref.")));
}

void check_timestamp(const char* field, TimestampTz t) {
  if (TIMESTAMP_NOT_FINITE(t))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be finite", field)));
}

void set_text(Envelope* e, int column, text* value) {
  e->nulls[column] = value == nullptr;
  e->values[column] = PointerGetDatum(value);
}

void insert_rows_one(Relation heap, Envelope* rows, int count, NewSlot* slots) {
  TupleDesc desc = RelationGetDescr(heap);
  CommandId cid = GetCurrentCommandId(true);
  auto* values = static_cast<Datum*>(palloc0(sizeof(Datum) * static_cast<Size>(desc->natts)));
  auto* nulls = static_cast<bool*>(palloc(static_cast<Size>(desc->natts)));
  memset(nulls, true, static_cast<Size>(desc->natts));
  for (int i = 0; i < count; i++) {
    memcpy(values, rows[i].values, sizeof(rows[i].values));
    memcpy(nulls, rows[i].nulls, sizeof(rows[i].nulls));
    HeapTuple tuple = heap_form_tuple(desc, values, nulls);
    heap_insert(heap, tuple, cid, HEAP_INSERT_SKIP_FSM, nullptr);
    slots[i].tid = tuple->t_self;
    heap_freetuple(tuple);
  }
}

void insert_rows_many(Relation heap, Envelope* rows, int count, NewSlot* slots) {
  // A copy is not reference counted: hundreds of slots need not be entered in the resource owner and taken out again.
  TupleDesc desc = CreateTupleDescCopy(RelationGetDescr(heap));
  auto** tuple_slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * static_cast<Size>(count)));
  for (int i = 0; i < count; i++) {
    TupleTableSlot* s = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
    memset(s->tts_isnull, true, static_cast<Size>(desc->natts));
    memcpy(s->tts_values, rows[i].values, sizeof(rows[i].values));
    memcpy(s->tts_isnull, rows[i].nulls, sizeof(rows[i].nulls));
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

// The relation cache has the list since the map was found; it is made again only after an invalidation.
bool has_other_indexes(Relation heap) {
  if (heap->rd_indexvalid) return list_length(heap->rd_indexlist) > 1;
  List* indexes = RelationGetIndexList(heap);
  bool more = list_length(indexes) > 1;
  list_free(indexes);
  return more;
}

// A replicable queue has a primary key on id beside the map. Any other index would silently miss what is enqueued.
void insert_other_indexes(const Segment& segment, const NewSlot* slots, int count) {
  List* indexes = RelationGetIndexList(segment.heap);
  ListCell* lc;
  foreach (lc, indexes) {
    if (lfirst_oid(lc) == RelationGetRelid(segment.map)) continue;
    Relation index = index_open(lfirst_oid(lc), RowExclusiveLock);
    if (index->rd_index->indnatts != 1 || index->rd_index->indkey.values[0] != kRowId + 1)
      ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                      errmsg("index \"%s\" on segment \"%s\" is not supported", RelationGetRelationName(index), RelationGetRelationName(segment.heap)),
                      errhint("Drop it: a segment has its lease map and, if replicable, a primary key.")));
    IndexInfo* info = BuildIndexInfo(index);
    for (int i = 0; i < count; i++) {
      Datum value = Int64GetDatum(slots[i].id);
      bool isnull = false;
      ItemPointerData tid = slots[i].tid;
      index_insert(index, &value, &isnull, &tid, segment.heap, index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
    }
    pfree(info);
    index_close(index, NoLock);
  }
  list_free(indexes);
}

}  // namespace

void make_envelope(const Queue* queue, const EnvelopeInput& in, TimestampTz now, Envelope* e) {
  for (int i = 0; i < kRowColumns; i++) {
    e->values[i] = 0;
    e->nulls[i] = true;
  }
  if (!in.has_payload && !in.payload_ref)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload and payload_ref are both null"),
                    errhint("Pass a payload (for an empty one: '{}' or 'null'), or the address of one.")));
  if (in.has_payload) {
    check_size("payload", in.payload, queue->max_payload_bytes);
    int column = in.payload_is_bytes ? kRowPayloadBytes : kRowPayload;
    e->values[column] = in.payload;
    e->nulls[column] = false;
  }
  if (in.message_id) check_text_length("message_id", in.message_id, kMaxMessageIdBytes);
  if (in.routing_key) check_text_length("routing_key", in.routing_key, kMaxRoutingKeyBytes);
  if (in.message_class) check_text_length("message_class", in.message_class, kMaxMessageClassBytes);
  if (in.payload_ref) check_text_length("payload_ref", in.payload_ref, kMaxPayloadRefBytes);
  set_text(e, kRowMessageId, in.message_id);
  set_text(e, kRowRoutingKey, in.routing_key);
  set_text(e, kRowMessageClass, in.message_class);
  set_text(e, kRowPayloadRef, in.payload_ref);
  if (in.has_priority && in.priority != kDefaultPriority) {
    if (in.priority < kMinPriority || in.priority > kMaxPriority)
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("priority is out of range"),
                      errdetail("It is %d; allowed is %d to %d.", in.priority, kMinPriority, kMaxPriority)));
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("priority %d is not supported yet", in.priority),
                    errdetail("Only the default priority, %d, is.", kDefaultPriority)));
  }
  if (in.has_headers) {
    check_size("headers", in.headers, queue->max_headers_bytes);
    Jsonb* j = DatumGetJsonbP(in.headers);
    if (!JB_ROOT_IS_OBJECT(j)) raise_bad_argument("headers", "must be a JSON object");
    e->values[kRowHeaders] = in.headers;
    e->nulls[kRowHeaders] = false;
  }
  if (in.delay && in.has_not_before)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("delay and not_before are both given"), errhint("Pass one of them.")));
  e->due = 0;
  if (in.delay) {
    int64 us = interval_argument("delay", in.delay, 0, queue->max_delay);
    if (us > 0) e->due = now + us;
  }
  if (in.has_not_before) {
    check_timestamp("not_before", in.not_before);
    if (in.not_before > now) {
      if (in.not_before - now > queue->max_delay)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("not_before is too far in the future"),
                        errdetail("It is %s; the queue's max_delay allows up to %s.", pstrdup(timestamptz_to_str(in.not_before)),
                                  pstrdup(timestamptz_to_str(now + queue->max_delay)))));
      e->due = in.not_before;
    }
  }
  if (in.has_expires_at) {
    check_timestamp("expires_at", in.expires_at);
    if (in.expires_at <= now || (e->due != 0 && in.expires_at <= e->due))
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("expires_at is not after the time from which the message may be claimed"),
                      errdetail("It is %s; the message may be claimed from %s.", pstrdup(timestamptz_to_str(in.expires_at)),
                                pstrdup(timestamptz_to_str(e->due != 0 ? e->due : now)))));
    e->values[kRowExpiresAt] = TimestampTzGetDatum(in.expires_at);
    e->nulls[kRowExpiresAt] = false;
  }
  e->values[kRowEnqueuedAt] = TimestampTzGetDatum(now);
  e->nulls[kRowEnqueuedAt] = false;
  if (e->due != 0) {
    e->values[kRowNotBefore] = TimestampTzGetDatum(e->due);
    e->nulls[kRowNotBefore] = false;
  }
  e->lane = kDefaultLane;
  e->key_hash = in.routing_key ? routing_key_hash(in.routing_key) : 0;
  e->generation = 0;
  e->failures = 0;
}

void enqueue_rows(Queue* queue, Envelope* rows, int count, int64* ids) {
  if (count == 0) return;
  require_durability(queue->durability);
  auto* slots = static_cast<NewSlot*>(palloc(sizeof(NewSlot) * static_cast<Size>(Min(count, kChunk))));
  for (int done = 0; done < count;) {
    int n = Min(kChunk, count - done);
    Envelope* chunk = rows + done;
    // Before the sequence is touched: whoever holds a segment's lock keeps the queue from being dropped.
    int number;
    Segment segment = open_write_segment(queue, &number);
    for (int i = 0; i < n; i++) {
      if (chunk[i].nulls[kRowId]) chunk[i].values[kRowId] = Int64GetDatum(nextval_internal(queue->id_sequence, false));
      chunk[i].nulls[kRowId] = false;
      ids[done + i] = DatumGetInt64(chunk[i].values[kRowId]);
      slots[i].id = ids[done + i];
      slots[i].key_hash = chunk[i].key_hash;
      slots[i].generation = chunk[i].generation;
      slots[i].failures = chunk[i].failures;
      slots[i].foreign = false;
      slots[i].due = chunk[i].due;
    }
    if (n == 1)
      insert_rows_one(segment.heap, chunk, n, slots);
    else
      insert_rows_many(segment.heap, chunk, n, slots);
    if (has_other_indexes(segment.heap)) insert_other_indexes(segment, slots, n);
    bool extended = false;
    for (int i = 0; i < n;) {
      int run = 1;
      while (i + run < n && chunk[i + run].lane == chunk[i].lane) run++;
      extended |= append_slots(segment.map, chunk[i].lane, slots + i, run, queue->id);
      i += run;
    }
    if (extended && segment_size(segment) >= queue->segment_bytes) move_on(queue, segment, number);
    close_segment(segment, NoLock);
    done += n;
  }
  pfree(slots);
  baton::count(queue->id, Counter::kEnqueued, static_cast<uint64>(count));
}

const char* envelope_state(const Envelope& e) { return e.due != 0 ? "scheduled" : "ready"; }

}  // namespace baton
