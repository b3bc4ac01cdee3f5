// Shared memory: its size, its start, and the parts that are not lanes (leasemap/hints.hpp). All of it is hints.
#pragma once

#include "../leasemap/hints.hpp"
#include "postgres.hpp"

namespace baton {

// Per queue: counters and whether anybody waits.
struct QueueKey {
  Oid database;
  int32 id;
};

enum class Counter : int { kEnqueued, kClaimed, kAcked, kReleased, kQuarantined, kExpiredLeases, kFenced, kExpired, kCount };

// What is noted about a queue with notify => true (worker/notify.cpp), in bits of QueueHint.notify.
constexpr uint32 kNotifyAsked = 1;  // by the queue; set and cleared by the mover
constexpr uint32 kNotifyWork = 2;   // there is work since the last NOTIFY
constexpr uint32 kNotifyLook = 4;   // something falls due at a time that the mover may not know

struct QueueHint {
  QueueKey key;                       // changed only under the table lock, exclusive
  pg_atomic_uint32 live;
  pg_atomic_uint32 waiting;           // sessions in wait; read after a full barrier by whoever makes work ready
  pg_atomic_uint32 notify;
  pg_atomic_uint64 counters[static_cast<int>(Counter::kCount)];
  pg_atomic_uint32 fenced_incarnation;  // tokens of it are refused, though the definition may still name it; 0 = none
  pg_atomic_uint64 newest_open_seq;   // of the ring; 0 = unknown
  pg_atomic_uint64 rotated_at;        // microseconds since 2000; the mover's and retention's own notes
  pg_atomic_uint64 last_used;
};

// A session in wait or wait_any. One slot per process number; owner writes, wakers only change state by
// compare-and-exchange.
constexpr int kMaxWaitQueues = 32;
struct WaiterSlot {
  pg_atomic_uint32 state;  // 0 none, 1 waiting, 2 woken
  Oid database;
  int count;
  int32 queues[kMaxWaitQueues];
};

// A prepared transaction's ranges: COMMIT PREPARED calls nobody, so the mover asks after the xid.
struct PreparedRange {
  bool used;
  uint64 xid;
  LaneKey lane;
  Range range;
  int32 queue_id;
  TimestampTz due;
};
constexpr int kPreparedRanges = 512;

struct WorkerName {
  uint32 hash;      // 0 = free
  uint32 seen_on;   // day of its last claim; written under the shared lock, by whoever claims first that day
  uint32 saved_on;  // that day in baton_internal.worker_name; 0 = not there
  Oid database;
  char name[64];
};
constexpr int kWorkerNames = 1024;

// Launcher and per-database workers (worker/worker_slot.hpp owns the meaning; lock: worker_lock). Zero is the initial
// value of all of it.
constexpr int kWorkerSteps = 24;
struct StepStatus {
  char name[24];
  TimestampTz last_success;
  TimestampTz last_error;
  uint64 runs;
  char error[128];
};
struct WorkerSlot {
  Oid database;  // InvalidOid = free
  int kind;      // 0 mover, 1 retention
  pid_t pid;     // 0: not started yet, or gone and out of the process array
  int proc_number;
  int state;
  TimestampTz state_since;
  int failures;
  int step_count;
  uint64 generation;  // of the launcher that started it
  int exit_reason;    // why it left, for the launcher
  bool stop_wanted;   // somebody asks it to leave
  StepStatus steps[kWorkerSteps];
};
constexpr int kWorkerSlots = 128;

// Databases in which CREATE or DROP EXTENSION was committed: 0 = free entry. Set by any backend, taken by the launcher.
constexpr int kChangedDatabases = 64;
// Databases in which no worker may start until a DROP, RENAME or copy of them is over: 0 = free entry.
constexpr int kDatabaseBlocks = 32;

// What rotation remembers about a segment between two looks (leasemap/drain.hpp).
struct DrainNote {
  Oid database;  // InvalidOid = free
  RelNumber rel;
  TimestampTz drained_at;   // found settled for good; 0 = not yet
  TimestampTz last_used;
  BlockNumber unsettled_at;  // page on which unsettled work was met last
  TimestampTz little_since;  // little has been left in it since; 0 = more, or not known
  TimestampTz counted_at;    // when what is left was counted last
};
constexpr int kDrainNotes = 2048;

// Per database: when the next message in a due-time bucket is due, as far as known. Whoever puts one there lowers it, the
// mover sets it; a claimer that finds it in the past helps itself.
struct DueHint {
  pg_atomic_uint32 database;  // 0 = free; taken for good by compare-and-exchange
  pg_atomic_uint32 restarts;  // messages were put there past the hint: begin to look from the start
  pg_atomic_uint64 next;      // kNever = none; 0 = unknown
  pg_atomic_uint64 long_next; // when to look at the long segments again; 0 = now
};
constexpr int kDueHints = 256;

struct SharedState {
  TimestampTz began;      // when this memory was made; never changes
  LWLock* lane_lock;      // table of lane hints: shared to find, exclusive to make or evict
  LWLock* queue_lock;     // table of queue hints
  LWLock* prepared_lock;  // prepared[]
  LWLock* name_lock;      // names[]
  LWLock* worker_lock;    // workers[], launcher_*, drains[]
  LaneHint* lanes;
  int lane_capacity;
  QueueHint* queues;
  int queue_capacity;
  WaiterSlot* waiters;
  int waiter_capacity;
  pg_atomic_uint32 prepared_count;
  pg_atomic_uint32 wake_rotor;
  PreparedRange prepared[kPreparedRanges];
  WorkerName names[kWorkerNames];
  pid_t launcher_pid;
  int launcher_proc_number;
  uint64 launcher_generation;
  pg_atomic_uint32 scan_wanted;  // the set of databases may have changed
  pg_atomic_uint32 all_changed;  // changed_databases[] was full
  pg_atomic_uint32 changed_databases[kChangedDatabases];
  pg_atomic_uint32 database_blocks[kDatabaseBlocks];
  StepStatus launcher_steps[2];
  WorkerSlot workers[kWorkerSlots];
  DrainNote drains[kDrainNotes];
  DueHint dues[kDueHints];
};

extern SharedState* shared;  // nullptr unless preloaded

void install_shmem_hooks();

// Since when there have been sessions on this server that could still be here, for core/slot.hpp's end_orphan: 0 in
// recovery, where those who claim are on another server.
TimestampTz sessions_began();

QueueHint* queue_hint(Oid database, int32 queue_id);       // makes it
QueueHint* find_queue_hint(Oid database, int32 queue_id);  // nullptr if there is none; safe in callbacks
void count(int32 queue_id, Counter counter, uint64 n);

// There is work for n: wakes up to n sessions that wait for the queue, one per message, and lets the mover tell those who
// LISTEN. Safe in callbacks.
void wake_waiters(Oid database, int32 queue_id, uint64 n);
// The first half, for work that is no news.
void wake_sessions(Oid database, int32 queue_id, uint64 n);
// The second half, for a queue that asked for it: at most one wake-up of the mover until it has looked.
void note_for_notify(Oid database, int32 queue_id, uint32 what);

uint32 worker_number(const char* name);               // NULL name: this process
void worker_name(uint32 number, char* out, Size size);  // for display

// ---- due-time buckets of this database
void due_noted(TimestampTz due);
void due_unknown();
TimestampTz due_next();       // 0: unknown
uint32 due_restarts();
void begin_due_look();        // from here on, what others put there is kept apart ...
void replace_due(TimestampTz expected, TimestampTz next);  // unless it has changed
void end_due_look(TimestampTz next);  // ... from what the look has found

// ---- the long segments of this database: when to look for claims whose lease is over
void long_noted(TimestampTz deadline);  // there may be one from then on
TimestampTz long_next();
void begin_long_look(TimestampTz again);  // a look begins; should it come to nothing, look again then

void wake_launcher();

}  // namespace baton
