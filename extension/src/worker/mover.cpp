// The mover: everything whose delay somebody waits for. It publishes what prepared transactions left behind, sweeps lanes
// whose time has come (leases over, due times that no hint stands for, lost hints), sets aside used-up and expired
// messages, and wakes waiting sessions when timed work comes due.
//
// It finds what to do by reading the hints of its database in shared memory, so an idle queue costs nothing, however many
// there are. Hints that do not exist (nobody touched the queue since the server started) are made by the forced sweep of
// retention. With the mover dead, claimers' own sweeps and waiters' own clocks find the same work later.
#include "mover.hpp"

#include "../leasemap/sweep.hpp"
#include "../pg/clock.hpp"
#include "../pg/guc.hpp"
#include "../pg/xid_status.hpp"
#include "../sqlfn/settle.hpp"
#include "due_round.hpp"
#include "expire.hpp"
#include "long_round.hpp"
#include "notify.hpp"
#include "retention.hpp"

namespace baton {
namespace {

constexpr int64 kSweepBudget = 100 * 1000;  // of one round; the rest comes in the next, after everything else
constexpr int64 kDueBudget = 200000;           // of one round
constexpr long kPreparedPollMs = 200;
constexpr long kShortestRestMs = 5;
constexpr int64 kRetryFailed = 5 * USECS_PER_SEC;

// ---- steps

struct QueueIds {
  int32* ids;
  int count;
};

void list_body(void* argument) {
  auto* out = static_cast<QueueIds*>(argument);
  int32* ids;
  int n = list_queue_ids(&ids);
  out->ids = static_cast<int32*>(MemoryContextAlloc(round_context(), sizeof(int32) * static_cast<Size>(n + 1)));
  memcpy(out->ids, ids, sizeof(int32) * static_cast<Size>(n));
  out->count = n;
}

void prepared_body(void* argument) {
  auto* open = static_cast<int*>(argument);
  auto* mine = static_cast<PreparedRange*>(palloc(sizeof(PreparedRange) * kPreparedRanges));
  int* place = static_cast<int*>(palloc(sizeof(int) * kPreparedRanges));
  int n = 0;
  LWLockAcquire(shared->prepared_lock, LW_SHARED);
  for (int i = 0; i < kPreparedRanges; i++) {
    const PreparedRange& p = shared->prepared[i];
    if (!p.used || p.lane.database != MyDatabaseId) continue;
    mine[n] = p;
    place[n++] = i;
  }
  LWLockRelease(shared->prepared_lock);
  *open = 0;
  for (int i = 0; i < n; i++) {
    const PreparedRange& p = mine[i];
    XidStatus status = xid_status(p.xid);
    if (status == XidStatus::kInProgress || status == XidStatus::kMine) {
      ++*open;
      continue;
    }
    // Rolled back as well: a settlement that did not happen leaves its message claimable.
    publish_by_key(p.lane, p.range, p.due);
    LWLockAcquire(shared->prepared_lock, LW_EXCLUSIVE);
    PreparedRange& now = shared->prepared[place[i]];
    if (now.used && now.xid == p.xid && now.lane == p.lane && now.range.block == p.range.block && now.range.first == p.range.first) {
      now.used = false;
      pg_atomic_fetch_sub_u32(&shared->prepared_count, 1);
    }
    LWLockRelease(shared->prepared_lock);
    if (p.due <= clock_now()) wake_waiters(MyDatabaseId, p.queue_id, p.range.count);
  }
}

struct SweepWork {
  int32 queue_id;
  bool forced;
  int64 exhausted;
};

void sweep_body(void* argument) {
  auto* w = static_cast<SweepWork*>(argument);
  Queue* queue = find_queue_by_id(w->queue_id);
  if (queue) (void)sweep_queue(queue, w->forced, &w->exhausted);
}

struct ExhaustedWork {
  int32 queue_id;
  bool one_by_one;
};

void exhausted_body(void* argument) {
  auto* w = static_cast<ExhaustedWork*>(argument);
  Queue* queue = find_queue_by_id(w->queue_id);
  // A copy that is not meant to work decides nothing about its messages.
  if (queue && queue->at_home && claims_enabled) (void)settle_exhausted(queue, w->one_by_one);
}

// ---- what the hints say

struct LaneLook {
  LaneHint* hint;
  LaneKey key;
  bool sweep_due;
  bool expiring;
  uint32 ready;  // on the lists, due
  bool fell_due;  // ... since the last look
  bool unoffered;  // there is something above the frontier
  TimestampTz next_at;
};

// Its lock is held for one pass over the lists of one lane.
bool look_at_lane(LaneHint* h, TimestampTz since, TimestampTz now, LaneLook* out) {
  SpinLockAcquire(&h->lock);
  bool mine = h->live && h->key.database == MyDatabaseId;
  if (mine) {
    out->hint = h;
    out->key = h->key;
    out->sweep_due = sweep_is_due(h, now);
    out->expiring = h->loaded && h->expiring;
    out->ready = 0;
    for (int i = 0; i < h->revisit_count; i++) out->ready += h->revisits[(h->revisit_head + i) % kRevisits].count;
    out->next_at = h->sweep_at > now ? h->sweep_at : kNever;
    out->fell_due = false;
    for (int i = 0; i < h->timed_count; i++) {
      if (h->timed[i].at <= now) {
        out->ready += h->timed[i].range.count;
        out->fell_due |= h->timed[i].at > since;
      } else if (h->timed[i].at < out->next_at) {
        out->next_at = h->timed[i].at;
      }
    }
    out->unoffered = h->frontier_block != InvalidBlockNumber &&
                     static_cast<uint64>(h->frontier_ordinal) * kSlotsPerPage + h->frontier_index < h->appended;
  }
  SpinLockRelease(&h->lock);
  return mine;
}

int look_at_lanes(TimestampTz now, LaneLook** out) {
  static TimestampTz last_look = 0;
  int room = 64;
  int n = 0;
  auto* looks = static_cast<LaneLook*>(palloc(sizeof(LaneLook) * static_cast<Size>(room)));
  for (int i = 0; i < shared->lane_capacity; i++) {
    LaneHint* h = &shared->lanes[i];
    // Read without the lock: a lane that appears this moment is seen in the next round.
    if (!h->live || h->key.database != MyDatabaseId) continue;
    if (n == room) {
      room *= 2;
      looks = static_cast<LaneLook*>(repalloc(looks, sizeof(LaneLook) * static_cast<Size>(room)));
    }
    if (look_at_lane(h, last_look, now, &looks[n])) n++;
  }
  last_look = now;
  *out = looks;
  return n;
}

// ---- which queue a map belongs to

struct MapOwner {
  RelNumber rel;         // hash key
  int32 queue_id;        // 0: of none, as far as could be seen
  TimestampTz retry_at;  // with 0: when to look again
};
HTAB* owners = nullptr;
constexpr int64 kUnknownAgain = 5 * USECS_PER_SEC;

struct OwnersWork {
  const int32* ids;
  int count;
};

// By name, without the cached definitions: a queue that has lost a segment must not keep the others from being found.
void owners_body(void* argument) {
  auto* w = static_cast<OwnersWork*>(argument);
  Oid data = baton_data_namespace();
  for (int i = 0; i < w->count; i++) {
    for (int n = 0; n < kMaxSegments; n++) {
      char name[NAMEDATALEN];
      segment_name(w->ids[i], n, name);
      Oid heap_oid = get_relname_relid(name, data);
      if (!OidIsValid(heap_oid)) break;
      // Locked by somebody: its lanes are looked at in a later round.
      if (!ConditionalLockRelationOid(heap_oid, AccessShareLock)) continue;
      Relation heap = try_relation_open(heap_oid, NoLock);
      if (heap) {
        Oid map_oid = find_map(heap);
        HeapTuple t = OidIsValid(map_oid) ? SearchSysCache1(RELOID, ObjectIdGetDatum(map_oid)) : nullptr;
        if (HeapTupleIsValid(t)) {
          RelNumber rel = reinterpret_cast<Form_pg_class>(GETSTRUCT(t))->relfilenode;
          auto* o = static_cast<MapOwner*>(hash_search(owners, &rel, HASH_ENTER, nullptr));
          o->queue_id = w->ids[i];
          ReleaseSysCache(t);
        }
        relation_close(heap, NoLock);
      }
      UnlockRelationOid(heap_oid, AccessShareLock);
    }
  }
}

void make_owners() {
  if (owners) hash_destroy(owners);
  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = sizeof(RelNumber);
  ctl.entrysize = sizeof(MapOwner);
  ctl.hcxt = TopMemoryContext;
  owners = hash_create("pg_baton maps", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

// Hints of maps that were truncated or dropped stay in shared memory for a while; they must not have the owners made anew
// in every round.
void note_unknown(RelNumber rel) {
  bool found;
  auto* o = static_cast<MapOwner*>(hash_search(owners, &rel, HASH_ENTER, &found));
  if (found) return;
  o->queue_id = 0;
  o->retry_at = GetCurrentTimestamp() + kUnknownAgain;
}

// 0: of none; -1: look it up.
int32 owner_of(RelNumber rel) {
  auto* o = static_cast<MapOwner*>(hash_search(owners, &rel, HASH_FIND, nullptr));
  if (!o || (o->queue_id == 0 && GetCurrentTimestamp() >= o->retry_at)) return -1;
  return o->queue_id;
}

// ---- one round

struct QueueRound {
  int32 id;  // hash key
  bool sweep_due;
  uint32 ready;
  bool fell_due;
  bool unoffered;
};

struct QueueFailure {
  int32 id;  // hash key
  TimestampTz retry_at;
};
HTAB* failed = nullptr;

HTAB* make_table(const char* name, Size entry, MemoryContext context) {
  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = sizeof(int32);
  ctl.entrysize = entry;
  ctl.hcxt = context;
  return hash_create(name, 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void note_failure(int32 id) {
  auto* f = static_cast<QueueFailure*>(hash_search(failed, &id, HASH_ENTER, nullptr));
  f->retry_at = GetCurrentTimestamp() + kRetryFailed;
}

bool is_failing(int32 id) {
  auto* f = static_cast<QueueFailure*>(hash_search(failed, &id, HASH_FIND, nullptr));
  if (!f) return false;
  if (GetCurrentTimestamp() < f->retry_at) return true;
  hash_search(failed, &id, HASH_REMOVE, nullptr);
  return false;
}

// ---- messages that expire

ExpiryBook* expiries = nullptr;
constexpr int64 kExpiryEvery = 100 * 1000;  // a round for each single message that falls due need not look at it

// Before the first look of this process: what another one knew is lost.
void want_every_expiry_look() {
  for (int i = 0; i < shared->lane_capacity; i++) {
    LaneHint* h = &shared->lanes[i];
    LaneKey key = h->key;
    if (h->live && key.database == MyDatabaseId) want_expiry_look(h, key);
  }
}

// True if there is more to do at once.
bool expire_messages(const LaneLook* looks, int n, const int32* ids, int count) {
  for (int i = 0; i < n; i++) {
    int32 id = looks[i].expiring ? owner_of(looks[i].key.rel) : 0;
    BlockNumber block;
    if (id > 0 && take_expiry_look(looks[i].hint, looks[i].key, &block))
      ask_for_expiry_look(expiries, looks[i].key.rel, looks[i].key.lane, id, block);
  }
  forget_expiry_of_dropped(expiries, ids, count);
  return expire_round(run_in_worker, expiries);
}

HTAB* group_by_queue(const LaneLook* looks, int n, TimestampTz* next, bool* unknown) {
  HTAB* rounds = make_table("pg_baton round", sizeof(QueueRound), round_context());
  *unknown = false;
  for (int i = 0; i < n; i++) {
    int32 id = owner_of(looks[i].key.rel);
    if (id < 0) *unknown = true;
    if (id <= 0) continue;
    if (looks[i].next_at < *next) *next = looks[i].next_at;
    bool found;
    auto* r = static_cast<QueueRound*>(hash_search(rounds, &id, HASH_ENTER, &found));
    if (!found) {
      r->sweep_due = false;
      r->ready = 0;
      r->fell_due = false;
      r->unoffered = false;
    }
    r->sweep_due |= looks[i].sweep_due;
    r->ready += looks[i].ready;
    r->fell_due |= looks[i].fell_due;
    r->unoffered |= looks[i].unoffered;
  }
  return rounds;
}

// What cannot wait for the end of the round.
void tend(bool* more) {
  bool noted;
  bool look;
  (void)send_notifications(run_in_worker, &noted, &look);
  *more |= look;
}

// Returns when something comes due next; *more: the budget of sweeps was used up.
TimestampTz do_round(DueFinder* finder, bool* more, bool* prepared_open) {
  TimestampTz next = kNever;
  next = due_round(run_in_worker, finder, kDueBudget, more);
  next = Min(next, long_round(run_in_worker, 0, false));
  *prepared_open = pg_atomic_read_u32(&shared->prepared_count) > 0 && settle_prepared(run_in_worker) > 0;

  int32* ids;
  int count;
  if (!list_queues(run_in_worker, &ids, &count)) return next;
  find_notified_queues(run_in_worker);
  tend(more);
  LaneLook* looks;
  int n = look_at_lanes(clock_now(), &looks);
  bool unknown;
  HTAB* rounds = group_by_queue(looks, n, &next, &unknown);
  if (unknown) {
    // New queues, rebuilt and truncated maps; what is still unknown afterwards is a map that is gone.
    OwnersWork w{ids, count};
    make_owners();
    (void)run_in_worker(Step::kQueues, owners_body, &w);
    for (int i = 0; i < n; i++) note_unknown(looks[i].key.rel);
    rounds = group_by_queue(looks, n, &next, &unknown);
  }

  // Everybody gets a turn: the round starts one queue further each time.
  static uint32 rotor = 0;
  rotor++;
  TimestampTz start = GetCurrentTimestamp();
  for (int i = 0; i < count; i++) {
    int32 id = ids[(rotor + static_cast<uint32>(i)) % static_cast<uint32>(count)];
    auto* r = static_cast<QueueRound*>(hash_search(rounds, &id, HASH_FIND, nullptr));
    if (!r) continue;
    wake_sessions(MyDatabaseId, id, r->ready);
    if (r->fell_due)
      note_fallen_due(id);
    else if (r->ready > 0 || r->unoffered)
      note_waiting_work(id);
    if (!r->sweep_due || is_failing(id)) continue;
    if (GetCurrentTimestamp() - start > kSweepBudget) {
      *more = true;
      continue;
    }
    if (!sweep_one(run_in_worker, id, false)) note_failure(id);
    // What it has found falls due at times that this round does not know.
    *more = true;
    tend(more);
  }
  note_success(Step::kWake);
  tend(more);

  static TimestampTz expired_at = 0;
  start = GetCurrentTimestamp();
  if (start - expired_at >= kExpiryEvery) {
    expired_at = start;
    if (expire_messages(looks, n, ids, count)) {
      *more = true;
      expired_at = 0;
    }
    tend(more);
  }
  return next;
}

}  // namespace

void move_all_due(StepRunner run, int32 queue_id) {
  DueFinder* finder = make_due_finder(round_context(), queue_id);
  bool more = true;
  while (more) {
    CHECK_FOR_INTERRUPTS();
    (void)due_round(run, finder, kDueBudget, &more);
  }
}

bool list_queues(StepRunner run, int32** ids, int* count) {
  QueueIds q{nullptr, 0};
  if (!run(Step::kQueues, list_body, &q)) return false;
  *ids = q.ids;
  *count = q.count;
  return true;
}

int settle_prepared(StepRunner run) {
  int open = 0;
  (void)run(Step::kPrepared, prepared_body, &open);
  return open;
}

bool sweep_one(StepRunner run, int32 queue_id, bool forced) {
  SweepWork w{queue_id, forced, 0};
  next_step_is_of(queue_id);
  bool swept = run(forced ? Step::kForcedSweep : Step::kSweep, sweep_body, &w);
  if (w.exhausted == 0) return swept;
  // Own transaction: a settlement that fails must not undo what the sweep wrote down.
  ExhaustedWork e{queue_id, false};
  next_step_is_of(queue_id);
  if (run(Step::kExhausted, exhausted_body, &e)) return swept;
  // One of them cannot be set aside, say because its row cannot be read: that step stays failed, for all to see.
  e.one_by_one = true;
  next_step_is_of(queue_id);
  return run(Step::kExhaustedAlone, exhausted_body, &e) && swept;
}

}  // namespace baton

extern "C" {
PGDLLEXPORT void baton_mover_main(Datum database);
}

void baton_mover_main(Datum database) {
  using namespace baton;
  enter_worker(database, WorkerKind::kMover);
  make_owners();
  expiries = make_expiry_book(TopMemoryContext);
  want_every_expiry_look();
  failed = make_table("pg_baton failed queues", sizeof(QueueFailure), TopMemoryContext);
  DueFinder* finder = make_due_finder(TopMemoryContext, 0);
  TimestampTz retention_seen = GetCurrentTimestamp();
  TimestampTz retention_done = 0;
  TimestampTz round_at = 0;
  for (;;) {
    leave_if_not_wanted();
    MemoryContextSwitchTo(round_context());
    MemoryContextReset(round_context());
    if (!enabled) {
      rest(mover_naptime_ms);
      continue;
    }
    // Woken for NOTIFY alone it does no more than that.
    bool noted;
    bool look;
    TimestampTz notify_at = send_notifications(run_in_worker, &noted, &look);
    TimestampTz now = GetCurrentTimestamp();
    if (!noted || look || now >= round_at) {
      bool more;
      bool prepared_open;
      TimestampTz next = do_round(finder, &more, &prepared_open);
      leave_if_not_wanted();

      // Too few worker processes for both: the mover does the other's work as well.
      now = GetCurrentTimestamp();
      if (worker_is_alive(MyDatabaseId, WorkerKind::kRetention)) {
        retention_seen = now;
      } else if (now - retention_seen > 2000 * static_cast<int64>(retention_naptime_ms) &&
                 now - retention_done > 1000 * static_cast<int64>(retention_naptime_ms)) {
        retention_round(run_in_worker);
        retention_done = now;
      }

      long sleep_ms = mover_naptime_ms;
      if (prepared_open && sleep_ms > kPreparedPollMs) sleep_ms = kPreparedPollMs;
      if (next != kNever) {
        // The difference is rounded up: never early.
        long until = TimestampDifferenceMilliseconds(clock_now(), next);
        if (until < sleep_ms) sleep_ms = Max(until, kShortestRestMs);
      }
      now = GetCurrentTimestamp();
      round_at = more ? now : now + sleep_ms * 1000;
    }
    rest(TimestampDifferenceMilliseconds(now, Min(round_at, notify_at)));
  }
}
