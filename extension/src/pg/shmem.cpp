// See shmem.hpp. Sizes are fixed at server start; a crash restart runs the start hook again on fresh memory.
#include "shmem.hpp"

#include "guc.hpp"

namespace baton {

SharedState* shared = nullptr;

namespace {

shmem_request_hook_type previous_request_hook = nullptr;
shmem_startup_hook_type previous_startup_hook = nullptr;
constexpr char kTranche[] = "pg_baton";
constexpr int kLocks = 5;
constexpr int kProbes = 16;

int waiter_capacity() { return MaxBackends + NUM_AUXILIARY_PROCS + max_prepared_xacts; }

Size shared_size() {
  Size size = MAXALIGN(sizeof(SharedState));
  size = add_size(size, MAXALIGN(mul_size(max_lanes, sizeof(LaneHint))));
  size = add_size(size, MAXALIGN(mul_size(max_queues, sizeof(QueueHint))));
  size = add_size(size, MAXALIGN(mul_size(waiter_capacity(), sizeof(WaiterSlot))));
  return size;
}

void request_memory() {
  if (previous_request_hook) previous_request_hook();
  RequestAddinShmemSpace(shared_size());
  RequestNamedLWLockTranche(kTranche, kLocks);
}

void start_memory() {
  if (previous_startup_hook) previous_startup_hook();
  shared = nullptr;
  LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
  bool found;
  char* base = static_cast<char*>(ShmemInitStruct("pg_baton", shared_size(), &found));
  auto* s = reinterpret_cast<SharedState*>(base);
  if (!found) {
    memset(base, 0, shared_size());
    s->began = GetCurrentTimestamp();
    LWLockPadded* locks = GetNamedLWLockTranche(kTranche);
    s->lane_lock = &locks[0].lock;
    s->queue_lock = &locks[1].lock;
    s->prepared_lock = &locks[2].lock;
    s->name_lock = &locks[3].lock;
    s->worker_lock = &locks[4].lock;
    char* p = base + MAXALIGN(sizeof(SharedState));
    s->lanes = reinterpret_cast<LaneHint*>(p);
    s->lane_capacity = max_lanes;
    p += MAXALIGN(mul_size(max_lanes, sizeof(LaneHint)));
    s->queues = reinterpret_cast<QueueHint*>(p);
    s->queue_capacity = max_queues;
    p += MAXALIGN(mul_size(max_queues, sizeof(QueueHint)));
    s->waiters = reinterpret_cast<WaiterSlot*>(p);
    s->waiter_capacity = waiter_capacity();
    for (int i = 0; i < s->lane_capacity; i++) SpinLockInit(&s->lanes[i].lock);
    for (int i = 0; i < s->queue_capacity; i++) {
      QueueHint& q = s->queues[i];
      pg_atomic_init_u32(&q.live, 0);
      pg_atomic_init_u32(&q.waiting, 0);
      pg_atomic_init_u32(&q.fenced_incarnation, 0);
      pg_atomic_init_u32(&q.notify, 0);
      pg_atomic_init_u64(&q.newest_open_seq, 0);
      pg_atomic_init_u64(&q.rotated_at, 0);
      pg_atomic_init_u64(&q.last_used, 0);
      for (auto& c : q.counters) pg_atomic_init_u64(&c, 0);
    }
    for (int i = 0; i < s->waiter_capacity; i++) pg_atomic_init_u32(&s->waiters[i].state, 0);
    pg_atomic_init_u32(&s->prepared_count, 0);
    pg_atomic_init_u32(&s->wake_rotor, 0);
    pg_atomic_init_u32(&s->scan_wanted, 1);
  }
  shared = s;
  LWLockRelease(AddinShmemInitLock);
}

uint32 queue_slot(Oid database, int32 id) {
  return hash_combine(murmurhash32(database), murmurhash32(static_cast<uint32>(id))) % static_cast<uint32>(shared->queue_capacity);
}

QueueHint* probe_queue(Oid database, int32 id) {
  uint32 start = queue_slot(database, id);
  for (int i = 0; i < kProbes; i++) {
    QueueHint* q = &shared->queues[(start + i) % shared->queue_capacity];
    if (pg_atomic_read_u32(&q->live) && q->key.database == database && q->key.id == id) return q;
  }
  return nullptr;
}

}  // namespace

void install_shmem_hooks() {
  previous_request_hook = shmem_request_hook;
  shmem_request_hook = request_memory;
  previous_startup_hook = shmem_startup_hook;
  shmem_startup_hook = start_memory;
}

TimestampTz sessions_began() { return shared && !RecoveryInProgress() ? shared->began : 0; }

QueueHint* find_queue_hint(Oid database, int32 id) {
  LWLockAcquire(shared->queue_lock, LW_SHARED);
  QueueHint* q = probe_queue(database, id);
  LWLockRelease(shared->queue_lock);
  return q;
}

QueueHint* queue_hint(Oid database, int32 id) {
  QueueHint* q = find_queue_hint(database, id);
  if (q) return q;
  LWLockAcquire(shared->queue_lock, LW_EXCLUSIVE);
  q = probe_queue(database, id);
  if (!q) {
    // Of the places this key may take: a free one, or the longest unused one nobody waits on.
    uint32 start = queue_slot(database, id);
    for (int i = 0; i < kProbes; i++) {
      QueueHint* c = &shared->queues[(start + i) % shared->queue_capacity];
      if (!pg_atomic_read_u32(&c->live)) {
        q = c;
        break;
      }
      if (pg_atomic_read_u32(&c->waiting) > 0) continue;
      if (!q || pg_atomic_read_u64(&c->last_used) < pg_atomic_read_u64(&q->last_used)) q = c;
    }
    if (!q) q = &shared->queues[start];
    q->key = QueueKey{database, id};
    for (auto& c : q->counters) pg_atomic_write_u64(&c, 0);
    pg_atomic_write_u32(&q->waiting, 0);
    pg_atomic_write_u32(&q->fenced_incarnation, 0);
    pg_atomic_write_u32(&q->notify, 0);
    pg_atomic_write_u64(&q->newest_open_seq, 0);
    pg_atomic_write_u64(&q->rotated_at, 0);
    pg_atomic_write_u64(&q->last_used, static_cast<uint64>(GetCurrentTimestamp()));
    pg_atomic_write_u32(&q->live, 1);
  }
  LWLockRelease(shared->queue_lock);
  return q;
}

void count(int32 queue_id, Counter counter, uint64 n) {
  if (n == 0) return;
  QueueHint* q = queue_hint(MyDatabaseId, queue_id);
  pg_atomic_fetch_add_u64(&q->counters[static_cast<int>(counter)], static_cast<int64>(n));
}

// The barrier is the other half of the one in wait: a waiter registers and then looks, we make work visible and then
// look for waiters, so one of the two sees the other.
static void wake(QueueHint* q, Oid database, int32 queue_id, uint64 n) {
  if (pg_atomic_read_u32(&q->waiting) == 0) return;
  int capacity = shared->waiter_capacity;
  uint32 start = pg_atomic_fetch_add_u32(&shared->wake_rotor, 1);
  for (int i = 0; i < capacity && n > 0; i++) {
    int proc = static_cast<int>((start + i) % capacity);
    WaiterSlot& w = shared->waiters[proc];
    if (pg_atomic_read_u32(&w.state) != 1 || w.database != database) continue;
    bool match = false;
    for (int j = 0; j < w.count && j < kMaxWaitQueues; j++) match |= w.queues[j] == queue_id;
    if (!match) continue;
    uint32 expected = 1;
    if (pg_atomic_compare_exchange_u32(&w.state, &expected, 2)) {
      set_proc_latch(proc);
      n--;
    }
  }
}

static void wake_mover(Oid database) {
  LWLockAcquire(shared->worker_lock, LW_SHARED);
  for (const WorkerSlot& s : shared->workers)
    if (s.database == database && s.kind == 0 && s.pid != 0) set_proc_latch(s.proc_number);
  LWLockRelease(shared->worker_lock);
}

static void note(QueueHint* q, Oid database, uint32 what) {
  uint32 now = pg_atomic_read_u32(&q->notify);
  if (!(now & kNotifyAsked) || (now & what) == what) return;
  // Who comes while it is noted already need not wake anybody: the mover takes all notes at once, and then looks.
  if (!(pg_atomic_fetch_or_u32(&q->notify, what) & (kNotifyWork | kNotifyLook))) wake_mover(database);
}

void wake_waiters(Oid database, int32 queue_id, uint64 n) {
  if (n == 0) return;
  pg_memory_barrier();
  QueueHint* q = find_queue_hint(database, queue_id);
  if (!q) return;
  note(q, database, kNotifyWork);
  wake(q, database, queue_id, n);
}

void wake_sessions(Oid database, int32 queue_id, uint64 n) {
  if (n == 0) return;
  pg_memory_barrier();
  QueueHint* q = find_queue_hint(database, queue_id);
  if (q) wake(q, database, queue_id, n);
}

void note_for_notify(Oid database, int32 queue_id, uint32 what) {
  pg_memory_barrier();
  QueueHint* q = find_queue_hint(database, queue_id);
  if (q) note(q, database, what);
}

static DueHint* due_hint() {
  uint32 start = murmurhash32(MyDatabaseId) % kDueHints;
  for (int i = 0; i < kDueHints; i++) {
    DueHint* h = &shared->dues[(start + static_cast<uint32>(i)) % kDueHints];
    uint32 free_place = 0;
    if (pg_atomic_read_u32(&h->database) == MyDatabaseId || pg_atomic_compare_exchange_u32(&h->database, &free_place, MyDatabaseId) ||
        free_place == MyDatabaseId)
      return h;
  }
  return nullptr;
}

static void lower_due(DueHint* h, TimestampTz due) {
  uint64 now = pg_atomic_read_u64(&h->next);
  while (now != 0 && due < static_cast<TimestampTz>(now) && !pg_atomic_compare_exchange_u64(&h->next, &now, static_cast<uint64>(due))) {
  }
}

void due_noted(TimestampTz due) {
  DueHint* h = shared ? due_hint() : nullptr;
  if (h) lower_due(h, due);
}

void due_unknown() {
  DueHint* h = shared ? due_hint() : nullptr;
  if (!h) return;
  pg_atomic_fetch_add_u32(&h->restarts, 1);
  pg_atomic_write_u64(&h->next, 0);
}

TimestampTz due_next() {
  DueHint* h = due_hint();
  return h ? static_cast<TimestampTz>(pg_atomic_read_u64(&h->next)) : 0;
}

uint32 due_restarts() {
  DueHint* h = due_hint();
  return h ? pg_atomic_read_u32(&h->restarts) : 0;
}

void begin_due_look() {
  if (DueHint* h = due_hint()) pg_atomic_write_u64(&h->next, static_cast<uint64>(kNever));
}

void replace_due(TimestampTz expected, TimestampTz next) {
  DueHint* h = due_hint();
  auto e = static_cast<uint64>(expected);
  if (h) (void)pg_atomic_compare_exchange_u64(&h->next, &e, static_cast<uint64>(next));
}

void end_due_look(TimestampTz next) {
  if (DueHint* h = due_hint()) lower_due(h, next);
}

void long_noted(TimestampTz deadline) {
  DueHint* h = shared ? due_hint() : nullptr;
  if (!h) return;
  uint64 now = pg_atomic_read_u64(&h->long_next);
  while (deadline < static_cast<TimestampTz>(now) && !pg_atomic_compare_exchange_u64(&h->long_next, &now, static_cast<uint64>(deadline))) {
  }
}

TimestampTz long_next() {
  DueHint* h = due_hint();
  return h ? static_cast<TimestampTz>(pg_atomic_read_u64(&h->long_next)) : 0;
}

void begin_long_look(TimestampTz again) {
  if (DueHint* h = due_hint()) pg_atomic_write_u64(&h->long_next, static_cast<uint64>(again));
}

// Where a name is looked for first. Workers of one name in many databases do not crowd in one place.
static int name_place(uint32 number) {
  return static_cast<int>(hash_combine(murmurhash32(number), murmurhash32(MyDatabaseId)) % kWorkerNames);
}

uint32 worker_number(const char* name) {
  // A process without a name is known by its pid; the top bit says so.
  if (!name) return 0x80000000u | static_cast<uint32>(MyProcPid);
  uint32 hash = DatumGetUInt32(hash_any(reinterpret_cast<const unsigned char*>(name), static_cast<int>(strlen(name)))) & 0x7fffffff;
  if (hash == 0) hash = 1;
  auto today = static_cast<uint32>(GetCurrentTimestamp() / USECS_PER_DAY);
  int start = name_place(hash);
  for (int pass = 0; pass < 2; pass++) {
    LWLockAcquire(shared->name_lock, pass == 0 ? LW_SHARED : LW_EXCLUSIVE);
    WorkerName* free_entry = nullptr;
    bool known = false;
    for (int i = 0; i < kProbes; i++) {
      WorkerName& w = shared->names[(start + i) % kWorkerNames];
      if (w.hash == hash && w.database == MyDatabaseId) {
        known = true;
        if (w.seen_on != today) w.seen_on = today;
        break;
      }
      if (w.hash == 0 && !free_entry) free_entry = &w;
    }
    if (!known && pass == 1) {
      // Full: the first place is given up if it has been saved; its name is in the table then.
      if (!free_entry && shared->names[start].saved_on != 0) free_entry = &shared->names[start];
      // Or to another database's, which may be gone; a worker that is still there comes back with its next claim.
      for (int i = 0; i < kProbes && !free_entry; i++) {
        WorkerName& w = shared->names[(start + i) % kWorkerNames];
        if (w.database != MyDatabaseId) free_entry = &w;
      }
      if (free_entry) {
        free_entry->hash = hash;
        free_entry->seen_on = today;
        free_entry->saved_on = 0;
        free_entry->database = MyDatabaseId;
        strlcpy(free_entry->name, name, sizeof(free_entry->name));
      }
    }
    LWLockRelease(shared->name_lock);
    if (known) break;
  }
  return hash;
}

// The name that a worker process has saved: for claims from before a restart, or of the primary.
static void saved_worker_name(uint32 number, char* out, Size size) {
  Oid schema = get_namespace_oid("baton_internal", true);
  Oid table_oid = OidIsValid(schema) ? get_relname_relid("worker_name", schema) : InvalidOid;
  Oid index = OidIsValid(schema) ? get_relname_relid("worker_name_pkey", schema) : InvalidOid;
  if (!OidIsValid(table_oid) || !OidIsValid(index)) return;
  Relation table = table_open(table_oid, AccessShareLock);
  ScanKeyData key;
  ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(static_cast<int32>(number)));
  SysScanDesc scan = systable_beginscan(table, index, true, nullptr, 1, &key);
  HeapTuple t = systable_getnext(scan);
  bool isnull = true;
  Datum name = HeapTupleIsValid(t) ? heap_getattr(t, 2, RelationGetDescr(table), &isnull) : static_cast<Datum>(0);
  if (!isnull) text_to_cstring_buffer(DatumGetTextPP(name), out, size);
  systable_endscan(scan);
  table_close(table, AccessShareLock);
}

void worker_name(uint32 number, char* out, Size size) {
  out[0] = '\0';
  if (number == 0) return;
  if (number & 0x80000000u) {
    snprintf(out, size, "pid %u", number & 0x7fffffff);
    return;
  }
  if (shared) {
    int start = name_place(number);
    LWLockAcquire(shared->name_lock, LW_SHARED);
    for (int i = 0; i < kProbes; i++) {
      const WorkerName& w = shared->names[(start + i) % kWorkerNames];
      if (w.hash == number && w.database == MyDatabaseId) {
        strlcpy(out, w.name, size);
        break;
      }
    }
    LWLockRelease(shared->name_lock);
  }
  if (!out[0]) {
    saved_worker_name(number, out, size);
    if (out[0] && shared) (void)worker_number(out);  // found in memory next time
  }
  if (!out[0]) snprintf(out, size, "#%u", number);
}

}  // namespace baton
