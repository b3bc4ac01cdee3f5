// The workers' steps by hand: CALL baton.maintain(). And what the workers last did: baton_internal.worker_status().
//
// maintain() gives each step a transaction of its own, so it must be called outside of a transaction block. Inside that
// transaction the step runs in a subtransaction: an error in the middle of it may leave open SPI connections behind, and
// the end of a subtransaction is what clears them.
#include "../leasemap/rotate.hpp"
#include "../pg/guc.hpp"
#include "../pg/queue.hpp"
#include "expire.hpp"
#include "long_round.hpp"
#include "mover.hpp"
#include "names.hpp"
#include "retention.hpp"
#include "worker_slot.hpp"

namespace baton {
namespace {

bool run_in_procedure(Step step, StepBody body, void* argument) {
  MemoryContext context = CurrentMemoryContext;
  ResourceOwner owner = CurrentResourceOwner;
  volatile bool done = false;
  CHECK_FOR_INTERRUPTS();
  BeginInternalSubTransaction(nullptr);
  PG_TRY();
  {
    PushActiveSnapshot(GetTransactionSnapshot());
    body(argument);
    PopActiveSnapshot();
    ReleaseCurrentSubTransaction();
    done = true;
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData* e = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    // Who cancels the call means the call.
    if (e->sqlerrcode == ERRCODE_QUERY_CANCELED) ReThrowError(e);
    ereport(WARNING, (errcode(e->sqlerrcode), errmsg("step \"%s\" failed: %s", step_name(step), e->message ? e->message : "unknown error"),
                      e->detail ? errdetail_internal("%s", e->detail) : 0, e->hint ? errhint("%s", e->hint) : 0));
    FreeErrorData(e);
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  CurrentResourceOwner = owner;
  SPI_commit();
  return done;
}

struct Scope {
  const char* name;  // nullptr: every queue of the caller's
  int32* ids;
  int count;
};

bool is_mine(const Queue* queue) { return object_owner_is_me(RelationRelationId, queue->view); }

void scope_of(Scope* s) {
  if (s->name) {
    Queue* queue = find_queue_by_name(s->name, false);
    if (!is_mine(queue))
      ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\"", queue->name)));
    s->ids = static_cast<int32*>(MemoryContextAlloc(round_context(), sizeof(int32)));
    s->ids[0] = queue->id;
    s->count = 1;
    return;
  }
  int32* ids;
  int n = list_queue_ids(&ids);
  s->ids = static_cast<int32*>(MemoryContextAlloc(round_context(), sizeof(int32) * static_cast<Size>(n + 1)));
  s->count = 0;
  for (int i = 0; i < n; i++) s->ids[s->count++] = ids[i];
}

// A queue that cannot be loaded is reported by its first step.
void skip_others_body(void* argument) {
  auto* id = static_cast<int32*>(argument);
  Queue* queue = find_queue_by_id(*id);
  if (!queue || !is_mine(queue)) *id = 0;
}

void maintain(Scope* scope) {
  for (int i = 0; i < scope->count; i++)
    if (!scope->name && !run_in_procedure(Step::kQueues, skip_others_body, &scope->ids[i])) scope->ids[i] = 0;
  (void)settle_prepared(run_in_procedure);
  if (!scope->name && superuser()) {
    move_all_due(run_in_procedure, 0);
    (void)long_round(run_in_procedure, 0, true);
  } else {
    for (int i = 0; i < scope->count; i++) {
      if (scope->ids[i] == 0) continue;
      move_all_due(run_in_procedure, scope->ids[i]);
      (void)long_round(run_in_procedure, scope->ids[i], true);
    }
  }
  for (int i = 0; i < scope->count; i++) {
    if (scope->ids[i] == 0) continue;
    (void)sweep_one(run_in_procedure, scope->ids[i], true);
    expire_one(run_in_procedure, scope->ids[i]);
    (void)move_one(run_in_procedure, scope->ids[i], true);
    bool left;
    (void)rotate_one(run_in_procedure, scope->ids[i], &left);
  }
  if (!superuser()) return;
  keep_retained_tables(run_in_procedure);
  keep_shared_tables(run_in_procedure, true);
  keep_worker_names(run_in_procedure);
  expire_quarantined(run_in_procedure);
}

// The result may be that of an earlier version, without the last columns.
void put_row(ReturnSetInfo* result, Oid database, const char* worker, pid_t pid, const StepStatus* step, const WorkerSlot* slot) {
  Datum values[10];
  bool nulls[10];
  memset(nulls, true, sizeof(nulls));
  auto put = [&](int i, Datum value, bool null = false) {
    values[i] = value;
    nulls[i] = null;
  };
  put(0, ObjectIdGetDatum(database), !OidIsValid(database));
  put(1, CStringGetTextDatum(worker));
  put(2, Int32GetDatum(pid), pid == 0);
  if (step) {
    put(3, CStringGetTextDatum(step->name));
    put(4, TimestampTzGetDatum(step->last_success), step->last_success == 0);
    put(5, TimestampTzGetDatum(step->last_error), step->last_error == 0);
    if (step->last_error != 0) put(6, CStringGetTextDatum(step->error));
    put(7, Int64GetDatum(static_cast<int64>(step->runs)));
  }
  put(8, CStringGetTextDatum(slot ? worker_state_name(static_cast<WorkerState>(slot->state)) : "running"));
  if (slot) put(9, TimestampTzGetDatum(slot->state_since));
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_maintain) {
  using namespace baton;
  bool can_commit = fcinfo->context && IsA(fcinfo->context, CallContext) && !castNode(CallContext, fcinfo->context)->atomic;
  if (!can_commit)
    ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("baton.maintain() cannot run inside a transaction block"),
                    errhint("Each of its steps has a transaction of its own: CALL it by itself.")));
  require_writable("maintain()");
  MemoryContextReset(round_context());
  Scope scope{nullptr, nullptr, 0};
  if (!PG_ARGISNULL(0)) scope.name = MemoryContextStrdup(round_context(), text_to_cstring(PG_GETARG_TEXT_PP(0)));
  if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  scope_of(&scope);
  maintain(&scope);
  SPI_finish();
  PG_RETURN_VOID();
}

BATON_SQL_FUNCTION(baton_worker_status) {
  using namespace baton;
  InitMaterializedSRF(fcinfo, 0);
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  if (!shared) return static_cast<Datum>(0);
  // A copy, so that no row is made under the lock.
  auto* slots = static_cast<WorkerSlot*>(palloc(sizeof(shared->workers)));
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  memcpy(slots, shared->workers, sizeof(shared->workers));
  pid_t launcher = shared->launcher_pid;
  StepStatus steps[lengthof(shared->launcher_steps)];
  memcpy(steps, shared->launcher_steps, sizeof(steps));
  LWLockRelease(shared->worker_lock);
  if (launcher != 0)
    for (const StepStatus& step : steps) put_row(result, InvalidOid, "launcher", launcher, &step, nullptr);
  for (int i = 0; i < kWorkerSlots; i++) {
    const WorkerSlot& s = slots[i];
    if (!OidIsValid(s.database)) continue;
    const char* kind = worker_kind_name(static_cast<WorkerKind>(s.kind));
    bool any = false;
    for (int n = 0; n < s.step_count; n++) {
      if (s.steps[n].name[0] == '\0') continue;
      put_row(result, s.database, kind, s.pid, &s.steps[n], &s);
      any = true;
    }
    if (!any) put_row(result, s.database, kind, s.pid, nullptr, &s);
  }
  return static_cast<Datum>(0);
}
