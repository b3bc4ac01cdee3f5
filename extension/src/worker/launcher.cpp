// The launcher. It is connected to no database and so cannot see whether one has the extension: the mover of a database
// is the probe and leaves at once where there is none. Such a database is probed again when CREATE EXTENSION was
// committed in it, or after a long time.
//
// Workers are registered as never-restart: the launcher owns restarts, with growing waits. It keeps handles in its own
// memory; what it must not forget when it is restarted itself is in shared memory: its generation, by which workers of
// its former life notice that they are orphans and leave, and the slots, of which there is never more than one per
// database and kind.
#include "launcher.hpp"

#include "../core/backoff.hpp"
#include "../pg/guc.hpp"
#include "worker_slot.hpp"

namespace baton {
namespace {

constexpr int64 kFirstWait = 5 * USECS_PER_SEC;
constexpr int64 kLongestWait = 60 * USECS_PER_SEC;
constexpr int64 kHealthyAfter = 60 * USECS_PER_SEC;
constexpr int64 kProbeAgain = USECS_PER_HOUR;
constexpr int64 kTurn = 15 * USECS_PER_SEC;  // with too few worker processes: how long a database keeps its workers
constexpr int64 kRetryStart = 5 * USECS_PER_SEC;
constexpr int kMostProbes = 3;  // at a time: probing must not take all worker processes of the server
constexpr int64 kRetryTaken = 100 * 1000;  // a block or an orphan is in the way
constexpr long kAfterStartMs = 200;

enum class Presence { kUnknown, kAbsent, kPresent };

struct Child {
  BackgroundWorkerHandle* handle;  // nullptr: none
  int slot;
  TimestampTz started_at;
  TimestampTz start_at;  // not before
  int failures;
};

struct Database {
  Oid oid;  // hash key
  char name[NAMEDATALEN];
  bool seen;
  bool eligible;
  bool changed;  // CREATE EXTENSION was committed since the mover was started
  Presence presence;
  TimestampTz probe_at;
  TimestampTz served_at;  // when it last gave up its workers for others
  Child children[kWorkerKinds];
};

// For the waits above that are about processes; whoever sets a shorter nap wants them shorter.
int64 no_longer_than_nap(int64 wait) { return Min(wait, static_cast<int64>(launcher_naptime_ms) * 1000); }

HTAB* databases = nullptr;
bool exhausted = false;
TimestampTz exhausted_until = 0;

// Heartbeats: the look at the databases, and whether there was a process for every worker.
enum { kLooked = 0, kStarted = 1 };

void note_step(int step, const char* error) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  StepStatus& s = shared->launcher_steps[step];
  s.runs++;
  if (error) {
    s.last_error = GetCurrentTimestamp();
    strlcpy(s.error, error, sizeof(s.error));
  } else {
    s.last_success = GetCurrentTimestamp();
  }
  LWLockRelease(shared->worker_lock);
}

void leave_launcher(int, Datum) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  if (shared->launcher_pid == MyProcPid) shared->launcher_pid = 0;
  LWLockRelease(shared->worker_lock);
}

// Slots of a former life whose process never came or has left are free; the processes that are there are told.
void take_over() {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  shared->launcher_pid = MyProcPid;
  shared->launcher_proc_number = my_proc_number();
  shared->launcher_generation++;
  strlcpy(shared->launcher_steps[kLooked].name, "databases", sizeof(shared->launcher_steps[kLooked].name));
  strlcpy(shared->launcher_steps[kStarted].name, "workers", sizeof(shared->launcher_steps[kStarted].name));
  for (WorkerSlot& s : shared->workers) {
    if (!OidIsValid(s.database)) continue;
    if (s.pid == 0)
      memset(&s, 0, sizeof(s));
    else
      set_proc_latch(s.proc_number);
  }
  LWLockRelease(shared->worker_lock);
}

// Orphans that have left since.
void free_orphan_slots() {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  for (WorkerSlot& s : shared->workers)
    if (OidIsValid(s.database) && s.pid == 0 && s.generation != shared->launcher_generation) memset(&s, 0, sizeof(s));
  LWLockRelease(shared->worker_lock);
}

void scan_databases() {
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, databases);
  while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) d->seen = false;

  Relation rel = table_open(DatabaseRelationId, AccessShareLock);
  TableScanDesc scan = table_beginscan_catalog(rel, 0, nullptr);
  while (HeapTuple t = heap_getnext(scan, ForwardScanDirection)) {
    auto* form = reinterpret_cast<Form_pg_database>(GETSTRUCT(t));
    Oid oid = form->oid;
    bool found;
    auto* d = static_cast<Database*>(hash_search(databases, &oid, HASH_ENTER, &found));
    if (!found) {
      memset(d, 0, sizeof(*d));
      d->oid = oid;
    }
    d->seen = true;
    // A template must have no sessions; -2 marks a database of which a DROP has begun.
    d->eligible = !form->datistemplate && form->datallowconn && form->datconnlimit != -2;
    strlcpy(d->name, NameStr(form->datname), NAMEDATALEN);
  }
  table_endscan(scan);
  table_close(rel, AccessShareLock);
}

void forget_prepared_of(Oid database) {
  LWLockAcquire(shared->prepared_lock, LW_EXCLUSIVE);
  for (PreparedRange& p : shared->prepared) {
    if (!p.used || p.lane.database != database) continue;
    p.used = false;
    pg_atomic_fetch_sub_u32(&shared->prepared_count, 1);
  }
  LWLockRelease(shared->prepared_lock);
}

void ask_to_stop(const Child& c) {
  if (!c.handle) return;
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  WorkerSlot& s = shared->workers[c.slot];
  s.stop_wanted = true;
  if (s.pid != 0) set_proc_latch(s.proc_number);
  LWLockRelease(shared->worker_lock);
}

void look_at_databases() {
  MemoryContext context = CurrentMemoryContext;
  pg_atomic_write_u32(&shared->scan_wanted, 0);
  SetCurrentStatementStartTimestamp();
  StartTransactionCommand();
  PushActiveSnapshot(GetTransactionSnapshot());
  scan_databases();
  PopActiveSnapshot();
  CommitTransactionCommand();
  MemoryContextSwitchTo(context);

  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, databases);
  while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) {
    if (d->seen && d->eligible) continue;
    d->eligible = false;
    for (const Child& c : d->children) ask_to_stop(c);
    if (d->seen || d->children[0].handle || d->children[1].handle) continue;
    forget_prepared_of(d->oid);
    hash_search(databases, &d->oid, HASH_REMOVE, nullptr);
  }
  note_step(kLooked, nullptr);
}

void take_marks() {
  bool all = pg_atomic_exchange_u32(&shared->all_changed, 0) != 0;
  if (all) {
    HASH_SEQ_STATUS seq;
    hash_seq_init(&seq, databases);
    while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) {
      d->probe_at = 0;
      d->changed = true;
    }
  }
  for (pg_atomic_uint32& m : shared->changed_databases) {
    Oid oid = pg_atomic_read_u32(&m) != 0 ? pg_atomic_exchange_u32(&m, 0) : InvalidOid;
    if (!OidIsValid(oid)) continue;
    auto* d = static_cast<Database*>(hash_search(databases, &oid, HASH_FIND, nullptr));
    if (!d) continue;
    d->probe_at = 0;
    d->changed = true;
    for (Child& c : d->children) c.start_at = 0;
  }
}

bool marks_pending() {
  if (pg_atomic_read_u32(&shared->all_changed) || pg_atomic_read_u32(&shared->scan_wanted)) return true;
  for (pg_atomic_uint32& m : shared->changed_databases)
    if (pg_atomic_read_u32(&m)) return true;
  return false;
}

// The state of a child that has left decides what becomes of its database.
void child_left(Database* d, Child* c) {
  TimestampTz now = GetCurrentTimestamp();
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  WorkerSlot& s = shared->workers[c->slot];
  auto reason = static_cast<ExitReason>(s.exit_reason);
  int failures = c->failures;
  memset(&s, 0, sizeof(s));
  LWLockRelease(shared->worker_lock);
  pfree(c->handle);
  c->handle = nullptr;
  exhausted_until = 0;
  switch (reason) {
    case ExitReason::kExtensionAbsent:
      if (d->presence != Presence::kAbsent) ereport(DEBUG1, (errmsg_internal("pg_baton is not installed in database \"%s\"", d->name)));
      d->presence = Presence::kAbsent;
      // It may have come after the worker had looked, and its mark has been taken already.
      d->probe_at = d->changed ? 0 : now + kProbeAgain;
      c->failures = 0;
      c->start_at = 0;
      break;
    case ExitReason::kAsked:
    case ExitReason::kOrphaned:
      c->start_at = 0;
      break;
    case ExitReason::kDied:
      if (now - c->started_at >= kHealthyAfter) failures = 0;
      c->failures = failures + 1;
      c->start_at = now + no_longer_than_nap(backoff_us(kFirstWait, kLongestWait, c->failures));
      break;
  }
}

void look_at_children() {
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, databases);
  while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) {
    for (Child& c : d->children) {
      if (!c.handle) continue;
      pid_t pid;
      switch (GetBackgroundWorkerPid(c.handle, &pid)) {
        case BGWH_POSTMASTER_DIED:
          proc_exit(1);
        case BGWH_STOPPED:
          child_left(d, &c);
          break;
        default:
          break;
      }
    }
    const Child& mover = d->children[static_cast<int>(WorkerKind::kMover)];
    if (!mover.handle) continue;
    LWLockAcquire(shared->worker_lock, LW_SHARED);
    int state = shared->workers[mover.slot].state;
    LWLockRelease(shared->worker_lock);
    if (state == static_cast<int>(WorkerState::kRunning) || state == static_cast<int>(WorkerState::kStandingBy))
      d->presence = Presence::kPresent;
  }
}

// Says so once, when it begins.
void no_more_workers(const Database* d, bool own_table) {
  exhausted_until = GetCurrentTimestamp() + no_longer_than_nap(kRetryStart);
  note_step(kStarted, own_table ? "too many databases: workers visit them in turn"
                                : "too few worker processes: workers visit the databases in turn; increase max_worker_processes");
  if (exhausted) return;
  exhausted = true;
  if (own_table)
    ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("pg_baton cannot watch more than %d databases at a time", kWorkerSlots / 2),
                  errdetail("The workers visit them in turn.")));
  else
    ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                  errmsg("pg_baton found no free background worker for database \"%s\"", d->name),
                  errdetail("The workers visit the databases in turn; messages that are due or whose lease is over wait longer there."),
                  errhint("Increase max_worker_processes by two for each database with pg_baton.")));
}

int take_slot(Oid database, WorkerKind kind) {
  int slot = -1;
  bool taken = false;
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  // A block that has just ended left word that the databases have changed, and this one may be gone: look first.
  if (!database_is_blocked(database) && pg_atomic_read_u32(&shared->scan_wanted) == 0) {
    for (int i = 0; i < kWorkerSlots; i++) {
      const WorkerSlot& s = shared->workers[i];
      if (!OidIsValid(s.database) && slot < 0) slot = i;
      if (s.database == database && s.kind == static_cast<int>(kind)) taken = true;  // an orphan that has not left yet
    }
    if (slot >= 0 && !taken) {
      WorkerSlot& s = shared->workers[slot];
      memset(&s, 0, sizeof(s));
      s.database = database;
      s.kind = static_cast<int>(kind);
      s.generation = shared->launcher_generation;
      s.state = static_cast<int>(WorkerState::kStarting);
      s.state_since = GetCurrentTimestamp();
    }
  } else {
    taken = true;
  }
  LWLockRelease(shared->worker_lock);
  return taken ? -2 : slot;
}

void give_back_slot(int slot) {
  LWLockAcquire(shared->worker_lock, LW_EXCLUSIVE);
  memset(&shared->workers[slot], 0, sizeof(WorkerSlot));
  LWLockRelease(shared->worker_lock);
}

// False: there is no room for it, and for no other either.
bool start_worker(Database* d, WorkerKind kind) {
  Child& c = d->children[static_cast<int>(kind)];
  int slot = take_slot(d->oid, kind);
  if (slot == -2) {
    c.start_at = GetCurrentTimestamp() + kRetryTaken;
    return true;
  }
  if (slot < 0) {
    no_more_workers(d, true);
    return false;
  }
  BackgroundWorker w;
  memset(&w, 0, sizeof(w));
  w.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  w.bgw_start_time = BgWorkerStart_RecoveryFinished;
  w.bgw_restart_time = BGW_NEVER_RESTART;
  w.bgw_notify_pid = MyProcPid;
  w.bgw_main_arg = ObjectIdGetDatum(d->oid);
  strlcpy(w.bgw_library_name, "pg_baton", sizeof(w.bgw_library_name));
  snprintf(w.bgw_function_name, BGW_MAXLEN, "baton_%s_main", worker_kind_name(kind));
  snprintf(w.bgw_name, BGW_MAXLEN, "pg_baton %s %s", worker_kind_name(kind), d->name);
  snprintf(w.bgw_type, BGW_MAXLEN, "pg_baton %s", worker_kind_name(kind));
  WorkerArguments a{shared->launcher_generation, slot, static_cast<int>(kind)};
  memcpy(w.bgw_extra, &a, sizeof(a));

  MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
  BackgroundWorkerHandle* handle = nullptr;
  bool registered = RegisterDynamicBackgroundWorker(&w, &handle);
  MemoryContextSwitchTo(old);
  if (!registered) {
    give_back_slot(slot);
    no_more_workers(d, false);
    return false;
  }
  c.handle = handle;
  c.slot = slot;
  c.started_at = GetCurrentTimestamp();
  c.start_at = 0;
  if (kind == WorkerKind::kMover) d->changed = false;
  pid_t pid;
  // A child that could not be forked reads as stopped: look_at_children takes it from there.
  if (WaitForBackgroundWorkerStartup(handle, &pid) == BGWH_POSTMASTER_DIED) proc_exit(1);
  return true;
}

bool is_probing(const Database* d) {
  return d->children[static_cast<int>(WorkerKind::kMover)].handle && d->presence != Presence::kPresent;
}

int by_turn(const ListCell* a, const ListCell* b) {
  const auto* x = static_cast<const Database*>(lfirst(a));
  const auto* y = static_cast<const Database*>(lfirst(b));
  if (x->served_at != y->served_at) return x->served_at < y->served_at ? -1 : 1;
  return x->oid < y->oid ? -1 : 1;
}

// Too few processes for all: the database that has had its workers longest gives them up, if its turn is over.
void pass_on_turn() {
  TimestampTz now = GetCurrentTimestamp();
  Database* longest = nullptr;
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, databases);
  while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) {
    const Child& m = d->children[static_cast<int>(WorkerKind::kMover)];
    if (!m.handle || d->presence != Presence::kPresent || now - m.started_at < no_longer_than_nap(kTurn)) continue;
    if (!longest || m.started_at < longest->children[0].started_at) longest = d;
  }
  if (!longest) return;
  longest->served_at = now;
  for (const Child& c : longest->children) ask_to_stop(c);
}

// Starts what is due. Returns when to come back at the latest.
TimestampTz start_workers(bool* started) {
  TimestampTz now = GetCurrentTimestamp();
  TimestampTz next = PG_INT64_MAX;
  int probes = 0;
  List* order = NIL;
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, databases);
  while (auto* d = static_cast<Database*>(hash_seq_search(&seq))) {
    if (is_probing(d)) probes++;
    if (d->eligible) order = lappend(order, d);
  }
  list_sort(order, by_turn);

  if (exhausted && now < exhausted_until) return exhausted_until;
  bool room = true;
  bool waiting = false;
  // Movers first: without one a database is late, without a retention worker its mover does that work too.
  for (int kind = 0; kind < kWorkerKinds && room; kind++) {
    ListCell* cell;
    foreach (cell, order) {
      auto* d = static_cast<Database*>(lfirst(cell));
      Child& c = d->children[kind];
      if (c.handle) continue;
      TimestampTz at = c.start_at;
      if (kind == static_cast<int>(WorkerKind::kMover)) {
        if (d->presence == Presence::kAbsent && d->probe_at > at) at = d->probe_at;
      } else if (d->presence != Presence::kPresent || !d->children[0].handle) {
        continue;
      }
      if (at > now) {
        waiting |= d->presence == Presence::kPresent;
        if (at < next) next = at;
        continue;
      }
      bool probe = d->presence != Presence::kPresent;
      if (probe && probes >= kMostProbes) continue;  // the end of one of them wakes us
      if (!start_worker(d, static_cast<WorkerKind>(kind))) {
        room = false;
        if (kind == static_cast<int>(WorkerKind::kMover)) pass_on_turn();
        break;
      }
      *started = true;
      if (probe) probes++;
    }
  }
  if (room) note_step(kStarted, nullptr);
  if (room && exhausted && !waiting) {
    exhausted = false;
    ereport(LOG, (errmsg("pg_baton has workers for all its databases again")));
  }
  if (!room && exhausted_until < next) next = exhausted_until;
  return next;
}

// One error must not end the launcher: its workers would be orphans.
bool look_at_databases_safely() {
  MemoryContext context = CurrentMemoryContext;
  volatile bool done = true;
  PG_TRY();
  {
    look_at_databases();
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    note_step(kLooked, "see the server's log");
    EmitErrorReport();
    FlushErrorState();
    AbortCurrentTransaction();
    MemoryContextSwitchTo(context);
    done = false;
  }
  PG_END_TRY();
  return done;
}

}  // namespace

void register_launcher() {
  BackgroundWorker w;
  memset(&w, 0, sizeof(w));
  w.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  w.bgw_start_time = BgWorkerStart_RecoveryFinished;
  w.bgw_restart_time = 5;
  strlcpy(w.bgw_library_name, "pg_baton", sizeof(w.bgw_library_name));
  strlcpy(w.bgw_function_name, "baton_launcher_main", BGW_MAXLEN);
  strlcpy(w.bgw_name, "pg_baton launcher", BGW_MAXLEN);
  strlcpy(w.bgw_type, "pg_baton launcher", BGW_MAXLEN);
  RegisterBackgroundWorker(&w);
}

void wake_launcher() {
  if (!shared) return;
  pg_atomic_write_u32(&shared->scan_wanted, 1);
  pg_memory_barrier();
  if (shared->launcher_pid != 0) set_proc_latch(shared->launcher_proc_number);
}

void mark_database_changed(Oid database) {
  if (!shared) return;
  for (pg_atomic_uint32& m : shared->changed_databases) {
    uint32 expected = 0;
    if (pg_atomic_read_u32(&m) == database) return;
    if (pg_atomic_compare_exchange_u32(&m, &expected, database)) return;
  }
  pg_atomic_write_u32(&shared->all_changed, 1);
}

}  // namespace baton

extern "C" {
PGDLLEXPORT void baton_launcher_main(Datum argument);
}

void baton_launcher_main(Datum) {
  using namespace baton;
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, die);
  // Nothing here is worth cancelling, and the error would make all workers orphans.
  ignore_signal(SIGINT);
  BackgroundWorkerUnblockSignals();
  if (!shared) proc_exit(1);
  on_shmem_exit(leave_launcher, static_cast<Datum>(0));
  BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
  SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_SESSION);
  SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
  SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
  take_over();

  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = sizeof(Oid);
  ctl.entrysize = sizeof(Database);
  ctl.hcxt = TopMemoryContext;
  databases = hash_create("pg_baton databases", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

  uint32 event = wait_event("BatonLauncherMain");
  TimestampTz scan_at = 0;
  for (;;) {
    MemoryContextSwitchTo(round_context());
    MemoryContextReset(round_context());
    free_orphan_slots();
    if (GetCurrentTimestamp() >= scan_at || pg_atomic_read_u32(&shared->scan_wanted)) {
      long wait_ms = look_at_databases_safely() ? launcher_naptime_ms : 1000;
      scan_at = GetCurrentTimestamp() + wait_ms * 1000;
    }
    take_marks();
    look_at_children();
    bool started = false;
    TimestampTz next = start_workers(&started);
    if (next > scan_at) next = scan_at;
    long sleep_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next);
    // Waiting for a start may have swallowed a wake-up.
    if (started && sleep_ms > kAfterStartMs) sleep_ms = kAfterStartMs;
    if (marks_pending() || ConfigReloadPending) sleep_ms = 0;
    pgstat_report_activity(STATE_IDLE, nullptr);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, sleep_ms, event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
      ConfigReloadPending = false;
      ProcessConfigFile(PGC_SIGHUP);
    }
  }
}
