// wait and wait_any: procedures that end the caller's transaction, so that nothing pins the horizon while they sleep.
//
// Protocol: register as a waiter, then look, then sleep. Whoever makes work ready makes it visible first and reads the
// number of waiters after a full barrier, so one of the two sees the other. A session that was woken and dies, or waits
// again, before it claims anything wakes the next.
#include "../core/envelope.hpp"
#include "../leasemap/sweep.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"
#include "claim_messages.hpp"
#include "wake_debt.hpp"

namespace baton {
namespace {

constexpr int64 kMaxTimeoutUs = 3600LL * 1000000;
constexpr int64 kStatementTimeoutMarginUs = 100000;

struct WaitState {
  int count;
  bool woken;  // somebody woke us, and we have not looked since
  int32 ids[kMaxWaitQueues];
  char names[kMaxWaitQueues][NAMEDATALEN];
};

enum class Look { kReady, kNothing, kPaused };

void become_waiter(const WaitState& w) {
  WaiterSlot* slot = &shared->waiters[my_proc_number()];
  slot->database = MyDatabaseId;
  slot->count = w.count;
  memcpy(slot->queues, w.ids, sizeof(int32) * static_cast<Size>(w.count));
  pg_write_barrier();
  pg_atomic_write_u32(&slot->state, 1);
  for (int i = 0; i < w.count; i++) pg_atomic_fetch_add_u32(&queue_hint(MyDatabaseId, w.ids[i])->waiting, 1);
  pg_memory_barrier();
}

// Returns true if somebody had woken us.
bool stop_waiting(const WaitState& w) {
  WaiterSlot* slot = &shared->waiters[my_proc_number()];
  bool woken = pg_atomic_exchange_u32(&slot->state, 0) == 2;
  for (int i = 0; i < w.count; i++) {
    QueueHint* q = queue_hint(MyDatabaseId, w.ids[i]);
    if (pg_atomic_fetch_sub_u32(&q->waiting, 1) == 0) pg_atomic_write_u32(&q->waiting, 0);
  }
  return woken;
}

void wake_another(const WaitState& w) {
  for (int i = 0; i < w.count; i++) wake_sessions(MyDatabaseId, w.ids[i], 1);
}

void exit_waiter(int, Datum arg) {
  auto* w = reinterpret_cast<WaitState*>(DatumGetPointer(arg));
  if (stop_waiting(*w) || w->woken) wake_another(*w);
}

// Looks with a snapshot of its own, which is gone when it returns. *next_at: when something is next known to come due.
Look look(const char* name, TimestampTz* next_at) {
  Queue* q = find_queue_by_name(name, false);
  check_privilege(q, ACL_UPDATE);
  require_enabled();
  if (q->paused) return Look::kPaused;
  if (!q->at_home || !claims_enabled) return Look::kNothing;
  PushActiveSnapshot(GetLatestSnapshot());
  bool found = something_to_claim(q);
  PopActiveSnapshot();
  if (found) return Look::kReady;
  bool has_work;
  TimestampTz next = queue_next_at(q, &has_work);
  if (next < *next_at) *next_at = next;
  return Look::kNothing;
}

// Ends the transaction, and with it every lock and snapshot; a new one begins without a snapshot.
void fresh_transaction() { SPI_commit(); }

// Time left until statement_timeout would cut the call; kNever if none is set.
int64 statement_time_left(TimestampTz now) {
  if (!get_timeout_active(STATEMENT_TIMEOUT)) return PG_INT64_MAX;
  return get_timeout_finish_time(STATEMENT_TIMEOUT) - now - kStatementTimeoutMarginUs;
}

// reason: what to tell; *which: index of the ready queue, -1 otherwise.
const char* wait_loop(WaitState* w, int64 timeout_us, int* which) {
  TimestampTz end = GetCurrentTimestamp() + timeout_us;
  static uint32 event = 0;
  if (event == 0) event = wait_event("BatonWait");
  *which = -1;
  for (;;) {
    CHECK_FOR_INTERRUPTS();
    ResetLatch(MyLatch);
    TimestampTz next_at = kNever;
    bool paused = true;
    bool ready = false;
    int start = w->count > 1 ? static_cast<int>(pg_prng_uint64(&pg_global_prng_state) % static_cast<uint64>(w->count)) : 0;
    for (int k = 0; k < w->count && !ready; k++) {
      int i = (start + k) % w->count;
      Look l = look(w->names[i], &next_at);
      if (l != Look::kPaused) paused = false;
      if (l == Look::kReady) {
        ready = true;
        *which = i;
      }
    }
    fresh_transaction();
    if (ready) return "ready";
    w->woken = false;
    // A paused queue is waited for as well: a loop of claim and wait must not spin until somebody resumes it.
    TimestampTz now = GetCurrentTimestamp();
    if (now >= end) return paused ? "paused" : "timeout";
    int64 left = statement_time_left(now);
    if (left <= 0) return "statement_timeout";
    int64 sleep_us = Min(end - now, left);
    sleep_us = Min(sleep_us, static_cast<int64>(wait_recheck_ms) * 1000);
    // next_at is by the clock that decides, which a test may have shifted.
    if (next_at != kNever) sleep_us = Min(sleep_us, Max(next_at - clock_now(), 1000));
    pgstat_report_activity(STATE_RUNNING, nullptr);
    int rc = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>((sleep_us + 999) / 1000), event);
    (void)rc;
    // Woken: stay registered, but as waiting again, before looking.
    uint32 expected = 2;
    if (pg_atomic_compare_exchange_u32(&shared->waiters[my_proc_number()].state, &expected, 1)) w->woken = true;
    if (ConfigReloadPending) {
      ConfigReloadPending = false;
      ProcessConfigFile(PGC_SIGHUP);
    }
  }
}

void refuse_in_transaction(FunctionCallInfo fcinfo, const char* verb) {
  auto* call = reinterpret_cast<CallContext*>(fcinfo->context);
  if (!call || !IsA(call, CallContext) || call->atomic || IsTransactionBlock())
    ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("baton.%s cannot run inside a transaction block", verb),
                    errhint("Call it on its own: it ends its transaction while it sleeps, so that it holds no snapshot.")));
}

int64 timeout_argument(FunctionCallInfo fcinfo, int arg) {
  if (PG_ARGISNULL(arg)) return 20 * 1000000LL;
  return interval_argument("timeout", PG_GETARG_INTERVAL_P(arg), 0, kMaxTimeoutUs);
}

const char* run_wait(FunctionCallInfo fcinfo, WaitState* w, int64 timeout_us, int* which) {
  SPI_connect_ext(SPI_OPT_NONATOMIC);
  pay_wake_debt();
  fresh_transaction();
  const char* reason = nullptr;
  become_waiter(*w);
  PG_ENSURE_ERROR_CLEANUP(exit_waiter, PointerGetDatum(w));
  {
    reason = wait_loop(w, timeout_us, which);
  }
  PG_END_ENSURE_ERROR_CLEANUP(exit_waiter, PointerGetDatum(w));
  // One wake-up stands for one message: what is found pays for one of them. Without one, a wake-up meant what was found.
  bool again = stop_waiting(*w);
  if (*which >= 0 ? again && w->woken : again) wake_another(*w);
  if (*which >= 0) owe_wake(w->ids[*which]);
  SPI_finish();
  return reason;
}

Datum one_column(FunctionCallInfo fcinfo, Datum value, bool isnull) {
  TupleDesc desc;
  if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE) elog(ERROR, "return type must be a row type");
  desc = BlessTupleDesc(desc);
  return HeapTupleGetDatum(heap_form_tuple(desc, &value, &isnull));
}

void add_queue(WaitState* w, text* name) {
  Queue* q = find_queue(name);
  check_privilege(q, ACL_UPDATE);
  for (int i = 0; i < w->count; i++)
    if (w->ids[i] == q->id) return;
  if (w->count == kMaxWaitQueues)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("queues has too many elements"), errdetail("The limit is %d.", kMaxWaitQueues)));
  w->ids[w->count] = q->id;
  strlcpy(w->names[w->count], q->name, NAMEDATALEN);
  w->count++;
}

// In memory that lives beyond the transactions that end while we wait.
WaitState* new_wait_state() { return static_cast<WaitState*>(MemoryContextAllocZero(PortalContext ? PortalContext : TopMemoryContext, sizeof(WaitState))); }

Datum wait_one(FunctionCallInfo fcinfo) {
  refuse_in_transaction(fcinfo, "wait");
  require_writable("wait");
  WaitState* w = new_wait_state();
  add_queue(w, PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  int which;
  const char* reason = run_wait(fcinfo, w, timeout_argument(fcinfo, 1), &which);
  return one_column(fcinfo, CStringGetTextDatum(reason), false);
}

Datum wait_many(FunctionCallInfo fcinfo) {
  refuse_in_transaction(fcinfo, "wait_any");
  require_writable("wait_any");
  ArrayArgument names = array_argument("queues", fcinfo, 0, TEXTOID);
  if (names.count < 1) raise_bad_argument("queues", "must name at least one queue");
  WaitState* w = new_wait_state();
  for (int i = 0; i < names.count; i++) {
    if (names.nulls[i]) raise_bad_argument("queues", "must not contain nulls");
    add_queue(w, DatumGetTextPP(names.values[i]));
  }
  int which;
  run_wait(fcinfo, w, timeout_argument(fcinfo, 1), &which);
  return one_column(fcinfo, which >= 0 ? CStringGetTextDatum(w->names[which]) : (Datum)0, which < 0);
}

}  // namespace

// ---- the wake-up a session has been given and has not used

namespace {

int32 owed_queue = 0;
bool exit_registered = false;

void pay_at_exit(int, Datum) {
  if (owed_queue != 0) wake_sessions(MyDatabaseId, owed_queue, 1);
  owed_queue = 0;
}

}  // namespace

void owe_wake(int32 queue_id) {
  if (!exit_registered) {
    before_shmem_exit(pay_at_exit, (Datum)0);
    exit_registered = true;
  }
  owed_queue = queue_id;
}

void wake_used(int32 queue_id) {
  if (owed_queue == queue_id) owed_queue = 0;
}

void pay_wake_debt() {
  if (owed_queue != 0) wake_sessions(MyDatabaseId, owed_queue, 1);
  owed_queue = 0;
}

}  // namespace baton

BATON_SQL_FUNCTION(baton_wait) { return baton::wait_one(fcinfo); }
BATON_SQL_FUNCTION(baton_wait_any) { return baton::wait_many(fcinfo); }
