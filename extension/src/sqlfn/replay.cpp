// Looking at what is retained, and offering it again. A replayed message is a new life: a copy with an id of its own, no
// claims and no failures, whose headers say which message it replays. It joins the caller's transaction like an enqueue.
#include "../core/envelope.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../retained/read.hpp"
#include "arguments.hpp"
#include "as_owner.hpp"
#include "audit.hpp"
#include "enqueue_rows.hpp"

namespace baton {
namespace {

constexpr int kFetch = 500;
constexpr int kMostReplayed = 10000000;
constexpr int kDefaultReplayed = 100000;
constexpr int kMostPerSecond = 1000000;

// ---- arguments that both verbs have

bool time_argument(FunctionCallInfo fcinfo, int arg, TimestampTz* out) {
  if (PG_ARGISNULL(arg)) return false;
  *out = PG_GETARG_TIMESTAMPTZ(arg);
  return true;
}

void times_and_ids(FunctionCallInfo fcinfo, int from_arg, int until_arg, int ids_arg, RetainedFilter* f) {
  f->has_from = time_argument(fcinfo, from_arg, &f->from);
  f->has_until = time_argument(fcinfo, until_arg, &f->until);
  if (f->has_from && f->has_until && f->from >= f->until)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("from_time is not before until_time"),
                    errdetail("from_time is %s, until_time is %s.", pstrdup(timestamptz_to_str(f->from)), pstrdup(timestamptz_to_str(f->until)))));
  f->has_ids = !PG_ARGISNULL(ids_arg);
  if (f->has_ids) f->ids = PG_GETARG_DATUM(ids_arg);
}

int count_argument(FunctionCallInfo fcinfo, int arg, const char* field, int fallback, int most) {
  if (PG_ARGISNULL(arg)) return fallback;
  int n = PG_GETARG_INT32(arg);
  if (n < 1 || n > most)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is out of range", field),
                    errdetail("It is %d; allowed is 1 to %d.", n, most)));
  return n;
}

// ---- retained

bool may_see(const Queue* queue, const char* column) {
  Oid me = GetUserId();
  if (pg_class_aclcheck(queue->view, me, ACL_SELECT) == ACLCHECK_OK) return true;
  AttrNumber n = get_attnum(queue->view, column);
  return n != InvalidAttrNumber && pg_attribute_aclcheck(queue->view, n, me, ACL_SELECT) == ACLCHECK_OK;
}

const char* seen(const Queue* queue, const char* column, const char* type) {
  return may_see(queue, column) ? psprintf("r.%s", column) : psprintf("NULL::pg_catalog.%s", type);
}

Datum retained(FunctionCallInfo fcinfo) {
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  if (!can_look(q)) check_privilege(q, ACL_SELECT);
  RetainedFilter f;
  memset(&f, 0, sizeof(f));
  f.queue_id = q->id;
  times_and_ids(fcinfo, 1, 2, 3, &f);
  int most = count_argument(fcinfo, 4, "max_items", 0, INT_MAX);
  const char* columns = psprintf(
      "r.id, r.settled_at, r.drop_at, r.worker, r.generation, r.failures, r.message_id, r.routing_key, r.message_class,"
      " coalesce(r.priority, %d), r.enqueued_at, %s, %s, %s, %s",
      kDefaultPriority, seen(q, "headers", "jsonb"), seen(q, "payload_ref", "text"), seen(q, "payload", "jsonb"), seen(q, "payload_bytes", "bytea"));
  const char* tail = most > 0 ? psprintf("ORDER BY r.settled_at, r.id LIMIT %d", most) : "ORDER BY r.settled_at, r.id";
  ReturnSetInfo* result = begin_result(fcinfo);
  Elevated e = become_extension_owner();
  if (Portal cursor = open_retained(f, columns, tail)) {
    for (;;) {
      SPI_cursor_fetch(cursor, true, kFetch);
      uint64 n = SPI_processed;
      for (uint64 i = 0; i < n; i++) tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
      SPI_freetuptable(SPI_tuptable);
      if (n == 0) break;
    }
    SPI_cursor_close(cursor);
  }
  become_caller(e);
  return static_cast<Datum>(0);
}

// ---- replay

struct Replay {
  Queue* queue;
  RetainedFilter filter;
  int max_items;
  int rate;  // per second; 0: all at once
  TimestampTz now;
  // found
  int64 messages;
  int64 bytes;
  TimestampTz oldest, newest;  // settled
  int64 first_id, last_id;     // of the new lives
  TimestampTz last_due;
};

// The columns of a row to be replayed. What it was is in its retained row; what its new life needs is copied.
enum Source { kSrcId, kSrcSettledAt, kSrcBytes, kSrcMessageId, kSrcRoutingKey, kSrcMessageClass, kSrcPayloadRef, kSrcHeaders, kSrcPayload, kSrcPayloadBytes };
constexpr const char* kBytes =
    "coalesce(pg_catalog.pg_column_size(r.payload), 0) + coalesce(pg_catalog.pg_column_size(r.payload_bytes), 0)"
    " + coalesce(pg_catalog.pg_column_size(r.headers), 0)";

TimestampTz due_of(const Replay& r, int64 n) { return r.rate == 0 ? 0 : r.now + n * USECS_PER_SEC / r.rate; }

void note_found(Replay* r, int64 messages, int64 bytes, TimestampTz oldest, TimestampTz newest) {
  if (r->messages == 0 || oldest < r->oldest) r->oldest = oldest;
  if (r->messages == 0 || newest > r->newest) r->newest = newest;
  r->messages += messages;
  r->bytes += bytes;
}

void count_matches(Replay* r) {
  Portal cursor = open_retained(r->filter, psprintf("pg_catalog.count(*), pg_catalog.sum(%s)::pg_catalog.int8, pg_catalog.min(r.settled_at), pg_catalog.max(r.settled_at)", kBytes), "");
  if (!cursor) return;
  SPI_cursor_fetch(cursor, true, 1);
  HeapTuple t = SPI_tuptable->vals[0];
  TupleDesc d = SPI_tuptable->tupdesc;
  bool isnull;
  int64 n = DatumGetInt64(SPI_getbinval(t, d, 1, &isnull));
  if (n > 0)
    note_found(r, n, DatumGetInt64(SPI_getbinval(t, d, 2, &isnull)), DatumGetTimestampTz(SPI_getbinval(t, d, 3, &isnull)),
               DatumGetTimestampTz(SPI_getbinval(t, d, 4, &isnull)));
  SPI_cursor_close(cursor);
}

void refuse_too_many(const Replay& r) {
  ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("more than %d messages are to be replayed", r.max_items),
                  errdetail("Nothing has been replayed."),
                  errhint("Replay a shorter time at once (from_time, until_time), or raise max_items, which allows up to %d.", kMostReplayed)));
}

void refuse_too_late(const Replay& r, TimestampTz due) {
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("the rate is too low for so many messages"),
                  errdetail("One of them would be due at %s; the queue's max_delay allows up to %s.", pstrdup(timestamptz_to_str(due)),
                            pstrdup(timestamptz_to_str(r.now + r.queue->max_delay))),
                  errhint("Raise the rate, or replay a shorter time at once.")));
}

void new_life(Replay* r, HeapTuple t, TupleDesc d, Envelope* e) {
  constexpr int kCopied[][2] = {{kSrcMessageId, kRowMessageId}, {kSrcRoutingKey, kRowRoutingKey}, {kSrcMessageClass, kRowMessageClass},
                                {kSrcPayloadRef, kRowPayloadRef}, {kSrcHeaders, kRowHeaders},     {kSrcPayload, kRowPayload},
                                {kSrcPayloadBytes, kRowPayloadBytes}};
  memset(e, 0, sizeof(*e));
  memset(e->nulls, true, sizeof(e->nulls));
  for (const auto& c : kCopied) e->values[c[1]] = SPI_getbinval(t, d, c[0] + 1, &e->nulls[c[1]]);
  auto set = [&](int column, Datum value) {
    e->values[column] = value;
    e->nulls[column] = false;
  };
  set(kRowEnqueuedAt, TimestampTzGetDatum(r->now));
  TimestampTz due = due_of(*r, r->messages);
  if (due > r->now) {
    if (due - r->now > r->queue->max_delay) refuse_too_late(*r, due);
    e->due = due;
    set(kRowNotBefore, TimestampTzGetDatum(due));
  }
  e->lane = kDefaultLane;
  e->key_hash = e->nulls[kRowRoutingKey] ? 0 : routing_key_hash(DatumGetTextPP(e->values[kRowRoutingKey]));
  r->last_due = due;
}

void replay_fetched(Replay* r, int n) {
  auto* rows = static_cast<Envelope*>(palloc(sizeof(Envelope) * static_cast<Size>(n)));
  auto* ids = static_cast<int64*>(palloc(sizeof(int64) * static_cast<Size>(n)));
  TupleDesc d = SPI_tuptable->tupdesc;
  for (int i = 0; i < n; i++) {
    HeapTuple t = SPI_tuptable->vals[i];
    if (r->messages == r->max_items) refuse_too_many(*r);
    new_life(r, t, d, &rows[i]);
    bool isnull;
    TimestampTz settled_at = DatumGetTimestampTz(SPI_getbinval(t, d, kSrcSettledAt + 1, &isnull));
    note_found(r, 1, DatumGetInt32(SPI_getbinval(t, d, kSrcBytes + 1, &isnull)), settled_at, settled_at);
  }
  // The cached definition can be loaded anew whenever a lock is taken.
  r->queue = find_queue_by_id(r->filter.queue_id);
  if (!r->queue) ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("the queue has been dropped meanwhile")));
  enqueue_rows(r->queue, rows, n, ids);
  if (r->first_id == 0) r->first_id = ids[0];
  r->last_id = ids[n - 1];
  pfree(rows);
  pfree(ids);
}

// In the order in which they were enqueued once.
void replay_matches(Replay* r) {
  const char* columns = psprintf(
      "r.id, r.settled_at, %s, r.message_id, r.routing_key, r.message_class, r.payload_ref,"
      " coalesce(r.headers, '{}') || pg_catalog.jsonb_build_object('baton_replay_of', r.id), r.payload, r.payload_bytes",
      kBytes);
  Portal cursor = open_retained(r->filter, columns, psprintf("ORDER BY r.id LIMIT %d", r->max_items + 1));
  if (!cursor) return;
  for (;;) {
    SPI_cursor_fetch(cursor, true, kFetch);
    int n = static_cast<int>(SPI_processed);
    if (n > 0) replay_fetched(r, n);
    SPI_freetuptable(SPI_tuptable);
    if (n == 0) break;
  }
  SPI_cursor_close(cursor);
}

// How far back the queue's retained messages go, if that is not as far as was asked for. False: they go beyond it.
bool begins_late(const Replay& r, TimestampTz* oldest) {
  *oldest = 0;
  if (!r.filter.has_from) return false;
  RetainedFilter f;
  memset(&f, 0, sizeof(f));
  f.queue_id = r.filter.queue_id;
  f.has_until = true;
  f.until = r.filter.from;
  Portal older = open_retained(f, "r.settled_at", "LIMIT 1");
  if (!older) return true;
  SPI_cursor_fetch(older, true, 1);
  bool found = SPI_processed > 0;
  SPI_cursor_close(older);
  if (found) return false;
  f.has_until = false;
  Portal all = open_retained(f, "pg_catalog.min(r.settled_at)", "");
  SPI_cursor_fetch(all, true, 1);
  bool isnull;
  Datum d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
  if (!isnull) *oldest = DatumGetTimestampTz(d);
  SPI_cursor_close(all);
  return true;
}

void audit_replay(const Replay& r, const text* reason) {
  StringInfoData s;
  initStringInfo(&s);
  appendStringInfo(&s, "{\"bytes\": " INT64_FORMAT, r.bytes);
  auto time = [&](const char* name, bool given, TimestampTz t) {
    if (given) appendStringInfo(&s, ", \"%s\": \"%s\"", name, timestamptz_to_str(t));
  };
  auto word = [&](const char* name, text* value) {
    if (!value) return;
    appendStringInfo(&s, ", \"%s\": ", name);
    escape_json(&s, text_to_cstring(value));
  };
  time("from_time", r.filter.has_from, r.filter.from);
  time("until_time", r.filter.has_until, r.filter.until);
  word("message_class", r.filter.message_class);
  word("routing_key", r.filter.routing_key);
  if (r.filter.has_ids) {
    ArrayType* ids = DatumGetArrayTypeP(r.filter.ids);
    appendStringInfo(&s, ", \"ids\": %d", ArrayGetNItems(ARR_NDIM(ids), ARR_DIMS(ids)));
  }
  if (r.rate > 0) appendStringInfo(&s, ", \"rate\": %d", r.rate);
  if (r.messages > 0) appendStringInfo(&s, ", \"first_id\": " INT64_FORMAT ", \"last_id\": " INT64_FORMAT, r.first_id, r.last_id);
  appendStringInfoChar(&s, '}');
  write_audit(AuditEntry{"replay", r.queue, r.messages, reason, s.data});
}

enum Arg { kQueue = 0, kFrom, kUntil, kClass, kKey, kIds, kDryRun, kRate, kMaxItems, kReason };

Datum replay(FunctionCallInfo fcinfo) {
  require_writable("replay");
  Replay r;
  memset(&r, 0, sizeof(r));
  r.queue = find_queue(PG_ARGISNULL(kQueue) ? nullptr : PG_GETARG_TEXT_PP(kQueue));
  check_privilege(r.queue, ACL_DELETE);
  r.filter.queue_id = r.queue->id;
  times_and_ids(fcinfo, kFrom, kUntil, kIds, &r.filter);
  if (!PG_ARGISNULL(kClass)) r.filter.message_class = PG_GETARG_TEXT_PP(kClass);
  if (!PG_ARGISNULL(kKey)) r.filter.routing_key = PG_GETARG_TEXT_PP(kKey);
  bool dry_run = PG_ARGISNULL(kDryRun) || PG_GETARG_BOOL(kDryRun);
  r.rate = count_argument(fcinfo, kRate, "rate", 0, kMostPerSecond);
  r.max_items = count_argument(fcinfo, kMaxItems, "max_items", kDefaultReplayed, kMostReplayed);
  text* reason = PG_ARGISNULL(kReason) ? nullptr : PG_GETARG_TEXT_PP(kReason);
  if (reason) check_text_length("reason", reason, kMaxReasonBytes);
  ReturnSetInfo* result = begin_result_in_from(fcinfo, "replay");
  r.now = clock_now();
  TimestampTz kept_since;
  Elevated e = become_extension_owner();
  if (dry_run) {
    count_matches(&r);
    if (r.messages > 0) r.last_due = due_of(r, r.messages - 1);
  } else {
    replay_matches(&r);
  }
  bool late = begins_late(r, &kept_since);
  become_caller(e);
  if (late && kept_since == 0)
    ereport(NOTICE, (errmsg("queue \"%s\" has nothing retained", r.queue->name)));
  else if (late)
    ereport(NOTICE, (errmsg("queue \"%s\" has nothing retained that was settled before %s", r.queue->name, timestamptz_to_str(kept_since))));
  if (!dry_run) audit_replay(r, reason);
  bool none = r.messages == 0;
  Datum values[6] = {Int64GetDatum(r.messages),         Int64GetDatum(r.bytes),  TimestampTzGetDatum(r.oldest),
                     TimestampTzGetDatum(r.newest),     TimestampTzGetDatum(r.last_due), BoolGetDatum(dry_run)};
  bool nulls[6] = {false, false, none, none, none || r.rate == 0, false};
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  return static_cast<Datum>(0);
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_retained) { return baton::retained(fcinfo); }
BATON_SQL_FUNCTION(baton_replay) { return baton::replay(fcinfo); }

BATON_SQL_FUNCTION(baton_count_retained) {
  using namespace baton;
  Elevated e = become_extension_owner();
  int64 n = count_retained(PG_GETARG_INT32(0));
  become_caller(e);
  PG_RETURN_INT64(n);
}
