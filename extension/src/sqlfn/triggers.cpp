// Trigger functions: INSERT and COPY into a queue's view, the outbox, and the refusal of updates.
//
// Rows inserted into a view are collected and written in batches: by the row trigger when enough have come together,
// and by the statement trigger for the rest. The collection lives in the transaction's memory; an abort takes it away.
#include "../core/envelope.hpp"
#include "../leasemap/row.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "enqueue_rows.hpp"

namespace baton {
namespace {

constexpr int kMaxPending = 500;

struct Pending {
  Oid view;
  SubTransactionId sub;
  MemoryContext context;
  int count;
  Envelope rows[kMaxPending];
  Pending* next;
};

Pending* pending_list = nullptr;

// Runs when a collection's memory goes: after it was written, or with an abort.
void forget_pending(void* arg) {
  auto* gone = static_cast<Pending*>(arg);
  Pending** link = &pending_list;
  while (*link && *link != gone) link = &(*link)->next;
  if (*link) *link = gone->next;
}

// The collection of a view in the current (sub)transaction, whose memory it is in; when that goes, so does the list. An
// INSERT whose rows come from a function that inserts as well, in a subtransaction, must not have them written there.
Pending* pending_for(Oid view, bool make) {
  SubTransactionId sub = GetCurrentSubTransactionId();
  for (Pending* p = pending_list; p; p = p->next)
    if (p->view == view && p->sub == sub) return p;
  if (!make) return nullptr;
  MemoryContext context = AllocSetContextCreate(CurTransactionContext, "baton view insert", ALLOCSET_DEFAULT_SIZES);
  auto* p = static_cast<Pending*>(MemoryContextAllocZero(context, sizeof(Pending)));
  auto* callback = static_cast<MemoryContextCallback*>(MemoryContextAlloc(context, sizeof(MemoryContextCallback)));
  callback->func = forget_pending;
  callback->arg = p;
  MemoryContextRegisterResetCallback(context, callback);
  p->view = view;
  p->sub = sub;
  p->context = context;
  p->next = pending_list;
  pending_list = p;
  return p;
}

void write_pending(Queue* queue, Pending* p) {
  int64 ids[kMaxPending];
  enqueue_rows(queue, p->rows, p->count, ids);
  MemoryContextDelete(p->context);  // with all that the rows point to; forget_pending takes it off the list
}

Queue* queue_of_view(TriggerData* t, FunctionCallInfo fcinfo) {
  if (!CALLED_AS_TRIGGER(fcinfo) || RelationGetNamespace(t->tg_relation) != baton_queue_namespace())
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("only for the views in schema baton_queue")));
  require_writable("enqueue");
  Queue* q = find_queue_by_name(RelationGetRelationName(t->tg_relation), false);
  // Whoever may insert into the view may enqueue; a view or function of the application in between acts for its owner.
  return q;
}

Datum column(HeapTuple row, TupleDesc desc, const char* name, bool* isnull) {
  int n = SPI_fnumber(desc, name);
  *isnull = true;
  if (n <= 0) return 0;
  return heap_getattr(row, n, desc, isnull);
}

text* text_column(HeapTuple row, TupleDesc desc, const char* name) {
  bool isnull;
  Datum d = column(row, desc, name, &isnull);
  return isnull ? nullptr : DatumGetTextPP(d);
}

void view_input(HeapTuple row, TupleDesc desc, EnvelopeInput* in) {
  static const char* const kGiven[] = {"id", "state", "enqueued_at", "generation", "failures", "worker", "lease_until"};
  bool isnull;
  for (const char* name : kGiven) {
    column(row, desc, name, &isnull);
    if (!isnull)
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("column \"%s\" cannot be inserted", name),
                      errhint("It is given by the queue: leave it out of the column list.")));
  }
  memset(in, 0, sizeof(*in));
  Datum payload = column(row, desc, "payload", &isnull);
  in->has_payload = !isnull;
  in->payload = payload;
  Datum bytes = column(row, desc, "payload_bytes", &isnull);
  if (!isnull) {
    if (in->has_payload) raise_bad_argument("payload and payload_bytes", "are both given");
    in->has_payload = true;
    in->payload = bytes;
    in->payload_is_bytes = true;
  }
  in->message_id = text_column(row, desc, "message_id");
  in->routing_key = text_column(row, desc, "routing_key");
  in->message_class = text_column(row, desc, "message_class");
  in->payload_ref = text_column(row, desc, "payload_ref");
  Datum d = column(row, desc, "priority", &isnull);
  in->has_priority = !isnull;
  in->priority = isnull ? 0 : DatumGetInt32(d);
  in->headers = column(row, desc, "headers", &isnull);
  in->has_headers = !isnull;
  d = column(row, desc, "not_before", &isnull);
  in->has_not_before = !isnull;
  in->not_before = isnull ? 0 : DatumGetTimestampTz(d);
  d = column(row, desc, "expires_at", &isnull);
  in->has_expires_at = !isnull;
  in->expires_at = isnull ? 0 : DatumGetTimestampTz(d);
}

// Copies what the row's values point to into the current memory context.
void keep_values(Envelope* e) {
  for (int c = kRowMessageId; c < kRowColumns; c++)
    if (!e->nulls[c]) e->values[c] = datumCopy(PointerGetDatum(PG_DETOAST_DATUM_PACKED(e->values[c])), false, -1);
}

// The row as it was enqueued, for RETURNING.
HeapTuple enqueued_row(HeapTuple given, TupleDesc desc, const Envelope& e) {
  struct Change {
    const char* column;
    Datum value;
    bool null;
  };
  const Change changes[] = {{"id", e.values[kRowId], false},
                            {"state", CStringGetTextDatum(envelope_state(e)), false},
                            {"priority", Int32GetDatum(kDefaultPriority), false},
                            {"enqueued_at", e.values[kRowEnqueuedAt], false},
                            {"not_before", e.values[kRowNotBefore], e.nulls[kRowNotBefore]},
                            {"generation", Int64GetDatum(0), false},
                            {"failures", Int32GetDatum(0), false}};
  constexpr int kMost = sizeof(changes) / sizeof(changes[0]);
  int columns[kMost];
  Datum values[kMost];
  bool nulls[kMost];
  int n = 0;
  for (const Change& c : changes) {
    columns[n] = SPI_fnumber(desc, c.column);
    values[n] = c.value;
    nulls[n] = c.null;
    if (columns[n] > 0) n++;
  }
  return heap_modify_tuple_by_cols(given, desc, n, columns, values, nulls);
}

Datum view_insert(FunctionCallInfo fcinfo) {
  auto* t = reinterpret_cast<TriggerData*>(fcinfo->context);
  Queue* q = queue_of_view(t, fcinfo);
  TupleDesc desc = RelationGetDescr(t->tg_relation);
  EnvelopeInput in;
  view_input(t->tg_trigtuple, desc, &in);
  Envelope e;
  make_envelope(q, in, clock_now(), &e);
  e.values[kRowId] = Int64GetDatum(nextval_internal(q->id_sequence, false));
  e.nulls[kRowId] = false;
  HeapTuple row = enqueued_row(t->tg_trigtuple, desc, e);
  Pending* p = pending_for(q->view, true);
  MemoryContext caller = MemoryContextSwitchTo(p->context);
  keep_values(&e);
  p->rows[p->count++] = e;
  MemoryContextSwitchTo(caller);
  if (p->count == kMaxPending) write_pending(q, p);
  return PointerGetDatum(row);
}

Datum view_insert_done(FunctionCallInfo fcinfo) {
  auto* t = reinterpret_cast<TriggerData*>(fcinfo->context);
  Queue* q = queue_of_view(t, fcinfo);
  Pending* p = pending_for(q->view, false);
  if (p) write_pending(q, p);
  return static_cast<Datum>(0);
}

Datum outbox(FunctionCallInfo fcinfo) {
  auto* t = reinterpret_cast<TriggerData*>(fcinfo->context);
  if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_STATEMENT(t->tg_event) || !TRIGGER_FIRED_AFTER(t->tg_event))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("baton.outbox must be an AFTER … FOR EACH STATEMENT trigger")));
  if (!t->tg_newtable)
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("baton.outbox needs the new rows"),
                    errhint("Add REFERENCING NEW TABLE AS new_rows to CREATE TRIGGER.")));
  int nargs = t->tg_trigger->tgnargs;
  if (nargs < 1 || nargs > 2)
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("baton.outbox takes the queue's name and, optionally, the column of the routing key")));
  require_writable("outbox");
  Queue* q = find_queue_by_name(t->tg_trigger->tgargs[0], false);
  check_privilege(q, ACL_INSERT);
  TupleDesc desc = RelationGetDescr(t->tg_relation);
  int key_column = 0;
  if (nargs == 2) {
    key_column = SPI_fnumber(desc, t->tg_trigger->tgargs[1]);
    if (key_column <= 0)
      ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("column \"%s\" of the outbox trigger does not exist", t->tg_trigger->tgargs[1])));
  }
  auto* rows = static_cast<Envelope*>(palloc(sizeof(Envelope) * kMaxPending));
  int64 ids[kMaxPending];
  TupleTableSlot* slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
  MemoryContext work = AllocSetContextCreate(CurrentMemoryContext, "baton outbox", ALLOCSET_DEFAULT_SIZES);
  MemoryContext caller = MemoryContextSwitchTo(work);
  int n = 0;
  tuplestore_rescan(t->tg_newtable);
  while (tuplestore_gettupleslot(t->tg_newtable, true, false, slot)) {
    EnvelopeInput in;
    memset(&in, 0, sizeof(in));
    Datum row = ExecFetchSlotHeapTupleDatum(slot);
    Datum json = DirectFunctionCall1(row_to_json, row);
    in.payload = DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));
    in.has_payload = true;
    if (key_column > 0) {
      bool isnull;
      Datum key = slot_getattr(slot, key_column, &isnull);
      if (!isnull) {
        Oid output;
        bool varlena;
        getTypeOutputInfo(TupleDescAttr(desc, key_column - 1)->atttypid, &output, &varlena);
        in.routing_key = cstring_to_text(OidOutputFunctionCall(output, key));
      }
    }
    make_envelope(q, in, clock_now(), &rows[n++]);
    if (n == kMaxPending) {
      enqueue_rows(q, rows, n, ids);
      n = 0;
      ExecClearTuple(slot);
      MemoryContextReset(work);
    }
  }
  enqueue_rows(q, rows, n, ids);
  MemoryContextSwitchTo(caller);
  ExecDropSingleTupleTableSlot(slot);
  MemoryContextDelete(work);
  pfree(rows);
  return static_cast<Datum>(0);
}

Datum view_refuse(FunctionCallInfo fcinfo) {
  auto* t = reinterpret_cast<TriggerData*>(fcinfo->context);
  bool is_delete = CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_BY_DELETE(t->tg_event);
  ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("messages are not %s directly", is_delete ? "deleted" : "updated"),
                  is_delete ? errhint("Settle a claimed message with baton.ack, baton.release or baton.quarantine.")
                            : errhint("A message never changes; claim it and settle it with baton.ack, baton.release or baton.quarantine.")));
  pg_unreachable();
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_view_insert) { return baton::view_insert(fcinfo); }
BATON_SQL_FUNCTION(baton_view_insert_done) { return baton::view_insert_done(fcinfo); }
BATON_SQL_FUNCTION(baton_view_refuse) { return baton::view_refuse(fcinfo); }
BATON_SQL_FUNCTION(baton_outbox) { return baton::outbox(fcinfo); }

// An update would make a second row version, a second slot, and settled work ready again.
BATON_SQL_FUNCTION(baton_refuse_update) {
  (void)fcinfo;
  ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("message rows are never updated"),
                  errhint("Settle the message, or enqueue a new one.")));
  pg_unreachable();
}
