// See worker_slot.hpp.
#include "worker_slot.hpp"

#include "../leasemap/xact.hpp"
#include "../pg/guc.hpp"

namespace baton {
namespace {

constexpr int kLockTimeoutMs = 200;
constexpr long kPoliteStopMs = 2000;
constexpr long kForcedStopMs = 5000;
constexpr TimestampTz kRepeatErrorAfter = 60 * USECS_PER_SEC;

// This process, when it is a worker.
int my_slot = -1;
WorkerKind my_kind = WorkerKind::kMover;
uint64 my_generation = 0;
bool extension_gone = false;
int32 step_queue = 0;  // of the next step, or the one that runs; 0 = of none
MemoryContext round_memory = nullptr;

// What was last reported of each step, so that an error that stays fills no log.
struct Reported {
  char text[128];
  TimestampTz at;
};
Reported reported[static_cast<int>(Step::kCount)];

constexpr const char* kStepNames[] = {
    "prepared",
    "queues",
    "due",
    "sweep",
    "exhausted",
    "exhausted alone",
    "long claims",
    "wake",
    "rotate",
    "retained",
    "retained index",
    "move",
    "shared tables",
    "names",
    "old names",
    "forced sweep",
    "expire",
    "quarantined",
    "notify",
};
static_assert(sizeof(kStepNames) / sizeof(kStepNames[0]) == static_cast<int>(Step::kCount));
static_assert(static_cast<int>(Step::kCount) <= kWorkerSteps);

// After the process has left the process array and before it gives up its PGPROC.
void release_slot(int, Datum) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  WorkerSlot& s = shared->workers[my_slot];
  if (s.generation == my_generation && s.pid == MyProcPid) {
    s.pid = 0;
    s.state = static_cast<int>(WorkerState::kLeft);
    s.state_since = GetCurrentTimestamp();
  }
  LWLockRelease(shared->worker_lock);
}

void set_state(WorkerState state) {
  WorkerSlot& s = shared->workers[my_slot];
  if (s.state == static_cast<int>(state)) return;  // only this process changes it
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  s.state = static_cast<int>(state);
  s.state_since = GetCurrentTimestamp();
  int launcher = shared->launcher_pid != 0 ? shared->launcher_proc_number : -1;
  LWLockRelease(shared->worker_lock);
  if (launcher >= 0) set_proc_latch(launcher);
}

void force(const char* name, const char* value) { SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE); }

// As autovacuum does: nothing that somebody set for the server, a role or a database may end up in here.
void force_settings() {
  char timeout[32];
  snprintf(timeout, sizeof(timeout), "%d", kLockTimeoutMs);
  force("search_path", "pg_catalog, pg_temp");
  force("statement_timeout", "0");
  // A lock that somebody keeps on one queue must not stop the work for the others.
  force("lock_timeout", timeout);
  force("idle_in_transaction_session_timeout", "0");
  if (kHasTransactionTimeout) force("transaction_timeout", "0");
  force("zero_damaged_pages", "off");
  force("default_transaction_isolation", "read committed");
  force("default_transaction_read_only", "off");
  force("default_transaction_deferrable", "off");
  force("synchronous_commit", "local");
  force("max_parallel_workers_per_gather", "0");
  force("row_security", "off");
  force("jit", "off");
  SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_SESSION);
}

enum class Presence { kAbsent, kBusy, kReady, kNewer };

Oid look_up_extension(char* version, Size size) {
  Relation rel = table_open(ExtensionRelationId, AccessShareLock);
  ScanKeyData key;
  ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("pg_baton"));
  SysScanDesc scan = systable_beginscan(rel, ExtensionNameIndexId, true, nullptr, 1, &key);
  HeapTuple t = systable_getnext(scan);
  Oid oid = InvalidOid;
  if (HeapTupleIsValid(t)) {
    oid = reinterpret_cast<Form_pg_extension>(GETSTRUCT(t))->oid;
    bool null;
    Datum d = heap_getattr(t, Anum_pg_extension_extversion, RelationGetDescr(rel), &null);
    strlcpy(version, null ? "0" : TextDatumGetCString(d), size);
  }
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  return oid;
}

// Compares versions of the form 1.2.3; what follows a part that is not a number does not count.
bool version_is_newer(const char* a, const char* b) {
  for (int part = 0; part < 4; part++) {
    char* end_a;
    char* end_b;
    long x = strtol(a, &end_a, 10);
    long y = strtol(b, &end_b, 10);
    if (x != y) return x > y;
    a = *end_a == '.' ? end_a + 1 : "";
    b = *end_b == '.' ? end_b + 1 : "";
  }
  return false;
}

// The lock is held to the end of the transaction and keeps DROP and ALTER EXTENSION out while a step runs. It is not
// waited for: whoever has it may keep it for long.
Presence hold_extension(char* version, Size size) {
  Oid oid = look_up_extension(version, size);
  if (!OidIsValid(oid)) return Presence::kAbsent;
  LOCKTAG tag;
  SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, oid, 0);
  if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL) return Presence::kBusy;
  AcceptInvalidationMessages();
  if (look_up_extension(version, size) != oid) return Presence::kAbsent;
  return version_is_newer(version, BATON_VERSION) ? Presence::kNewer : Presence::kReady;
}

StepStatus* my_step(Step step) {
  WorkerSlot& s = shared->workers[my_slot];
  int n = static_cast<int>(step);
  if (s.step_count <= n) s.step_count = n + 1;
  if (s.steps[n].name[0] == '\0') strlcpy(s.steps[n].name, step_name(step), sizeof(s.steps[n].name));
  return &s.steps[n];
}

void note_error(Step step, const char* message) {
  const char* text = step_queue != 0 ? psprintf("queue %d: %s", step_queue, message) : message;
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  StepStatus* st = my_step(step);
  st->last_error = GetCurrentTimestamp();
  st->runs++;
  int n = pg_mbcliplen(text, static_cast<int>(strlen(text)), sizeof(st->error) - 1);
  memcpy(st->error, text, static_cast<Size>(n));
  st->error[n] = '\0';
  LWLockRelease(shared->worker_lock);
}

void report_error(Step step, const ErrorData* e) {
  Reported& last = reported[static_cast<int>(step)];
  TimestampTz now = GetCurrentTimestamp();
  const char* text = e->message ? e->message : "unknown error";
  if (strncmp(last.text, text, sizeof(last.text) - 1) == 0 && now - last.at < kRepeatErrorAfter) return;
  strlcpy(last.text, text, sizeof(last.text));
  last.at = now;
  ereport(WARNING, (errcode(e->sqlerrcode), errmsg("pg_baton: step \"%s\" failed: %s", step_name(step), text),
                    step_queue != 0 ? errcontext("queue with the id %d", step_queue) : 0, e->detail ? errdetail_internal("%s", e->detail) : 0, e->hint ? errhint("%s", e->hint) : 0,
                    e->context ? errcontext("%s", e->context) : 0));
}

}  // namespace

const char* worker_state_name(WorkerState state) {
  constexpr const char* kNames[] = {"free", "starting", "probing", "running", "standing by", "left"};
  return kNames[static_cast<int>(state)];
}

const char* worker_kind_name(WorkerKind kind) { return kind == WorkerKind::kMover ? "mover" : "retention"; }
const char* step_name(Step step) { return kStepNames[static_cast<int>(step)]; }

MemoryContext round_context() {
  if (!round_memory) round_memory = AllocSetContextCreate(TopMemoryContext, "baton worker round", ALLOCSET_DEFAULT_SIZES);
  return round_memory;
}

void enter_worker(Datum database, WorkerKind kind) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, die);
  BackgroundWorkerUnblockSignals();
  WorkerArguments a;
  memcpy(&a, MyBgworkerEntry->bgw_extra, sizeof(a));
  Oid oid = DatumGetObjectId(database);
  if (!shared || a.slot < 0 || a.slot >= kWorkerSlots) proc_exit(0);
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  WorkerSlot& s = shared->workers[a.slot];
  // The slot may have been given up meanwhile, or belong to a later launcher.
  bool wanted = s.database == oid && s.kind == static_cast<int>(kind) && s.generation == a.generation && s.pid == 0 &&
                s.state == static_cast<int>(WorkerState::kStarting) && shared->launcher_generation == a.generation;
  if (wanted && (s.stop_wanted || database_is_blocked(oid))) {
    s.state = static_cast<int>(WorkerState::kLeft);
    s.exit_reason = static_cast<int>(ExitReason::kAsked);
    wanted = false;
  }
  if (wanted) {
    s.pid = MyProcPid;
    s.proc_number = my_proc_number();
    my_slot = a.slot;
    my_kind = kind;
    my_generation = a.generation;
  }
  LWLockRelease(shared->worker_lock);
  if (!wanted) proc_exit(0);
  // Before connecting, so that it runs after the process has left the process array.
  on_shmem_exit(release_slot, static_cast<Datum>(0));
  BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
  force_settings();
  // What a worker settles, whoever is promoted can settle again: it never waits for a standby, or one that is gone would
  // stop the work of all queues.
  wait_for_standbys = false;
  set_state(WorkerState::kProbing);
}

void leave_worker(ExitReason reason) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  shared->workers[my_slot].exit_reason = static_cast<int>(reason);
  LWLockRelease(shared->worker_lock);
  proc_exit(0);
}

void leave_if_not_wanted() {
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  bool stop = shared->workers[my_slot].stop_wanted;
  bool orphaned = shared->launcher_generation != my_generation;
  LWLockRelease(shared->worker_lock);
  if (orphaned) leave_worker(ExitReason::kOrphaned);
  if (stop) leave_worker(ExitReason::kAsked);
  if (extension_gone) leave_worker(ExitReason::kExtensionAbsent);
}

void next_step_is_of(int32 queue_id) { step_queue = queue_id; }

// Outside of a step there is nothing to cancel, and a cancel must not end the worker.
static void heed_interrupts() {
  HOLD_CANCEL_INTERRUPTS();
  CHECK_FOR_INTERRUPTS();
  RESUME_CANCEL_INTERRUPTS();
  QueryCancelPending = false;
}

void rest(long timeout_ms) {
  static uint32 event = 0;
  if (event == 0) event = wait_event("BatonWorkerMain");
  pgstat_report_stat(true);
  pgstat_report_activity(STATE_IDLE, nullptr);
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, event);
  ResetLatch(MyLatch);
  heed_interrupts();
  if (ConfigReloadPending) {
    ConfigReloadPending = false;
    ProcessConfigFile(PGC_SIGHUP);
  }
}

bool run_in_worker(Step step, StepBody body, void* argument) {
  MemoryContext context = CurrentMemoryContext;
  volatile bool done = false;
  volatile bool stand_by = false;
  heed_interrupts();
  leave_if_not_wanted();
  PG_TRY();
  {
    char version[64];
    SetCurrentStatementStartTimestamp();
    pgstat_report_activity(STATE_RUNNING, step_name(step));
    StartTransactionCommand();
    PushActiveSnapshot(GetTransactionSnapshot());
    switch (hold_extension(version, sizeof(version))) {
      case Presence::kReady:
        set_state(WorkerState::kRunning);
        body(argument);
        done = true;
        break;
      case Presence::kNewer:
        stand_by = true;
        break;
      case Presence::kAbsent:
        extension_gone = true;
        break;
      case Presence::kBusy:
        break;
    }
    PopActiveSnapshot();
    CommitTransactionCommand();
    if (stand_by) {
      // Said by one of the two.
      if (my_kind == WorkerKind::kMover && shared->workers[my_slot].state != static_cast<int>(WorkerState::kStandingBy))
        ereport(WARNING, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                          errmsg("pg_baton %s in this database is newer than the loaded library %s", version, BATON_VERSION),
                          errdetail("The workers stand by."), errhint("Restart the server to load the newer library.")));
      set_state(WorkerState::kStandingBy);
    }
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData* e = CopyErrorData();
    FlushErrorState();
    AbortCurrentTransaction();
    MemoryContextSwitchTo(context);
    done = false;
    note_error(step, e->message ? e->message : "unknown error");
    report_error(step, e);
    FreeErrorData(e);
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  step_queue = 0;
  if (done) note_success(step);
  return done;
}

void note_success(Step step) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  StepStatus* st = my_step(step);
  st->last_success = GetCurrentTimestamp();
  st->runs++;
  LWLockRelease(shared->worker_lock);
}

void stop_workers(Oid database) {
  static uint32 event = 0;
  if (event == 0) event = wait_event("BatonStopWorkers");
  TimestampTz start = GetCurrentTimestamp();
  bool signalled = false;
  for (;;) {
    pid_t pids[kWorkerKinds * 2];
    int count = 0;
    LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
    for (WorkerSlot& s : shared->workers) {
      if (s.database != database) continue;
      s.stop_wanted = true;
      if (s.pid == 0) continue;
      set_proc_latch(s.proc_number);
      if (count < static_cast<int>(lengthof(pids))) pids[count++] = s.pid;
    }
    LWLockRelease(shared->worker_lock);
    if (count == 0) return;
    long waited_ms = static_cast<long>((GetCurrentTimestamp() - start) / 1000);
    // The command that follows says who is in its way.
    if (waited_ms > kForcedStopMs) return;
    if (waited_ms > kPoliteStopMs && !signalled) {
      for (int i = 0; i < count; i++) kill(pids[i], SIGTERM);
      signalled = true;
    }
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10L, event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
  }
}

void nudge_workers(Oid database) {
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  for (WorkerSlot& s : shared->workers)
    if (s.database == database && s.pid != 0) set_proc_latch(s.proc_number);
  LWLockRelease(shared->worker_lock);
}

void block_database(Oid database) {
  for (pg_atomic_uint32& b : shared->database_blocks) {
    uint32 expected = 0;
    if (pg_atomic_compare_exchange_u32(&b, &expected, database)) return;
  }
  // All taken by commands under way: a worker may come back too early, and the command says so.
}

void unblock_database(Oid database) {
  for (pg_atomic_uint32& b : shared->database_blocks) {
    uint32 expected = database;
    if (pg_atomic_compare_exchange_u32(&b, &expected, 0)) return;
  }
}

bool database_is_blocked(Oid database) {
  for (pg_atomic_uint32& b : shared->database_blocks)
    if (pg_atomic_read_u32(&b) == database) return true;
  pg_read_barrier();  // with unblock_database: what was said before is read after
  return false;
}

bool worker_is_alive(Oid database, WorkerKind kind) {
  bool alive = false;
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  for (const WorkerSlot& s : shared->workers)
    alive |= s.database == database && s.kind == static_cast<int>(kind) && s.pid != 0;
  LWLockRelease(shared->worker_lock);
  return alive;
}

}  // namespace baton
