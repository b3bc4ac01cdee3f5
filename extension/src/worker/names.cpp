// See names.hpp. A name is written once a day while it claims, so the table says which ones are out of use; a worker that
// calls itself something new at every start leaves a row for a week, and not for ever.
#include "names.hpp"

#include "../pg/clock.hpp"
#include "../pg/queue.hpp"

namespace baton {
namespace {

// Few enough that under a pinned horizon no hour leaves more dead rows than vacuum would notice.
constexpr TimestampTz kRemoveEvery = 15 * USECS_PER_MINUTE;
constexpr int kMostRemoved = 2000;

void read_names(WorkerName* out, int* count) {
  *count = 0;
  LWLockAcquire(shared->name_lock, LW_SHARED);
  for (const WorkerName& w : shared->names)
    if (w.hash != 0 && w.saved_on != w.seen_on && w.database == MyDatabaseId) out[(*count)++] = w;
  LWLockRelease(shared->name_lock);
}

// SQL of before 0.2.0 keeps names without a date, and for ever.
bool names_have_dates() {
  Oid table = get_relname_relid("worker_name", baton_internal_namespace());
  return OidIsValid(table) && get_attnum(table, "seen") != InvalidAttrNumber;
}

void save_body(void* argument) {
  auto* w = static_cast<WorkerName*>(argument);
  const char* sql = names_have_dates() ? "INSERT INTO baton_internal.worker_name AS w (hash, name, seen) VALUES ($1, $2, $3) "
                                         "ON CONFLICT (hash) DO UPDATE SET seen = EXCLUDED.seen"
                                       : "INSERT INTO baton_internal.worker_name (hash, name) VALUES ($1, $2) ON CONFLICT DO NOTHING";
  if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  Oid types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID};
  for (; w->hash != 0; w++) {
    // A name that was cut may end in the middle of a character.
    int n = pg_mbcliplen(w->name, static_cast<int>(strlen(w->name)), static_cast<int>(strlen(w->name)));
    Datum values[] = {Int32GetDatum(static_cast<int32>(w->hash)), PointerGetDatum(cstring_to_text_with_len(w->name, n)),
                      TimestampTzGetDatum(clock_now())};
    int rc = SPI_execute_with_args(sql, 3, types, values, nullptr, false, 0);
    if (rc != SPI_OK_INSERT) elog(ERROR, "saving a worker's name: %s", SPI_result_code_string(rc));
  }
  SPI_finish();
}

// No claim lives longer than the longest max_lifetime. Operators are qualified: by hand this runs under any search_path.
void remove_body(void*) {
  if (!names_have_dates()) return;
  if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  Oid types[] = {TIMESTAMPTZOID, INT4OID};
  Datum values[] = {TimestampTzGetDatum(clock_now() - USECS_PER_DAY), Int32GetDatum(kMostRemoved)};
  int rc = SPI_execute_with_args(
      "DELETE FROM baton_internal.worker_name WHERE hash OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT w.hash FROM baton_internal.worker_name w WHERE w.seen OPERATOR(pg_catalog.<) ($1 OPERATOR(pg_catalog.-)"
      " GREATEST(interval '7 days', (SELECT pg_catalog.max(q.max_lifetime) FROM baton_internal.queue q))) LIMIT $2))",
      2, types, values, nullptr, false, 0);
  if (rc != SPI_OK_DELETE) elog(ERROR, "removing workers' names: %s", SPI_result_code_string(rc));
  SPI_finish();
}

void save_names(StepRunner run) {
  auto* names = static_cast<WorkerName*>(MemoryContextAllocZero(round_context(), sizeof(WorkerName) * (kWorkerNames + 1)));
  int n;
  read_names(names, &n);
  if (n == 0 || !run(Step::kNames, save_body, names)) return;
  LWLockAcquire(shared->name_lock, LW_EXCLUSIVE);
  for (int i = 0; i < n; i++)
    for (WorkerName& w : shared->names)
      if (w.hash == names[i].hash && w.database == names[i].database) w.saved_on = names[i].seen_on;
  LWLockRelease(shared->name_lock);
}

}  // namespace

void keep_worker_names(StepRunner run) {
  static TimestampTz removed_at = 0;
  save_names(run);
  TimestampTz now = clock_now();
  if (removed_at != 0 && now >= removed_at && now - removed_at < kRemoveEvery) return;
  if (run(Step::kOldNames, remove_body, nullptr)) removed_at = now;
}

}  // namespace baton
