// What launcher, mover and retention workers share: their places in shared memory, the way in and out of a worker, and
// steps: pieces of work with a transaction, an error boundary and a heartbeat of their own.
//
// Lock: worker_lock protects every field of a WorkerSlot. A slot is made by the launcher, claimed by its child, and freed
// by the launcher (of this life or a later one) after the child has left. A child sets only its own slot. pid becomes 0
// after the process has left the process array, so DROP DATABASE may go on as soon as it reads 0.
#pragma once

#include "../pg/postgres.hpp"
#include "../pg/shmem.hpp"

namespace baton {

enum class WorkerKind : int { kMover = 0, kRetention = 1 };
constexpr int kWorkerKinds = 2;

enum class WorkerState : int {
  kFree = 0,
  kStarting = 1,   // registered with the postmaster
  kProbing = 2,    // connected; whether the extension is there is not known yet
  kRunning = 3,
  kStandingBy = 4, // the SQL of this database is newer than the library
  kLeft = 5,       // see exit_reason
};

enum class ExitReason : int {
  kDied = 0,              // error, or terminated by somebody: started again after a wait
  kExtensionAbsent = 1,   // looked at again when something has changed
  kAsked = 2,             // stop_wanted, or the database was blocked
  kOrphaned = 3,          // its launcher is gone and another one has taken over
};

// Passed in bgw_extra.
struct WorkerArguments {
  uint64 generation;
  int32 slot;
  int32 kind;
};
static_assert(sizeof(WorkerArguments) <= BGW_EXTRALEN);

const char* worker_kind_name(WorkerKind kind);
const char* worker_state_name(WorkerState state);

// ---- the life of a worker
// Takes its slot, connects, forces its settings. Does not return when the worker is not wanted any more.
void enter_worker(Datum database, WorkerKind kind);
[[noreturn]] void leave_worker(ExitReason reason);
// Leaves when asked to, when orphaned, or when the last step found that the extension has gone.
void leave_if_not_wanted();
// Sleeps without transaction or snapshot, at most this long; then interrupts and settings. A latch set ends it.
void rest(long timeout_ms);

// ---- steps
enum class Step : int {
  kPrepared,
  kQueues,
  kDue,
  kSweep,
  kExhausted,
  kExhaustedAlone,
  kLong,
  kWake,
  kRotate,
  kRetained,
  kRetainedIndex,
  kMove,
  kShared,
  kNames,
  kOldNames,
  kForcedSweep,
  kExpire,
  kQuarantined,
  kNotify,
  kCount,
};
const char* step_name(Step step);

using StepBody = void (*)(void* argument);
// Runs body in a transaction of its own, with a snapshot. True if it was committed. An error is rolled back, noted in the
// heartbeat, reported, and stays inside.
using StepRunner = bool (*)(Step step, StepBody body, void* argument);

// The queue that the next step is about, by its id: its error says so. Only for that one step.
void next_step_is_of(int32 queue_id);

// The runner of a background worker. Holds the extension's object locked while the body runs and does not run it when the
// extension is absent, being changed, or newer than the library.
bool run_in_worker(Step step, StepBody body, void* argument);
// For steps without a transaction.
void note_success(Step step);

// In whatever process: memory for one round, reset by its owner.
MemoryContext round_context();

// ---- for hooks
// Asks the workers of a database to leave and waits until they have; ends them by signal when they take long.
void stop_workers(Oid database);
// Wakes the workers of a database; safe in callbacks.
void nudge_workers(Oid database);
// No worker is started in the database while it is blocked. Safe in callbacks.
void block_database(Oid database);
void unblock_database(Oid database);
bool database_is_blocked(Oid database);
// Is there a live worker of that kind?
bool worker_is_alive(Oid database, WorkerKind kind);

}  // namespace baton
