// See xact.hpp.
#include "xact.hpp"

#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"

namespace baton {
namespace {

struct EnqueueNote {
  LaneKey lane;
  Range range;
  uint32 page_ordinal;
  SubTransactionId sub;
  TimestampTz due;
  int32 queue_id;
  bool first;
};

struct ClaimNote {
  LaneKey lane;
  BlockNumber block;
  SubTransactionId sub;
  uint64 nonce;
  int32 queue_id;
  uint8 index;
};

struct SettleNote {
  LaneKey lane;
  BlockNumber block;
  SubTransactionId sub;
  TimestampTz due;
  TimestampTz deadline;
  int32 queue_id;
  uint8 index;
  bool release;
};

struct PutBack {
  LaneKey lane;
  Range range;
  TimestampTz at;
};

template <typename T>
struct NoteList {
  T* items;
  int count;
  int capacity;

  // May raise (out of memory); everything after it may not.
  void reserve(int n) {
    if (count + n <= capacity) return;
    int wanted = Max(capacity * 2, Max(count + n, 64));
    Size size = mul_size(wanted, sizeof(T));
    items = static_cast<T*>(items ? repalloc_huge(items, size) : MemoryContextAllocHuge(TopMemoryContext, size));
    capacity = wanted;
  }

  void clear() {
    count = 0;
    // What one bulk load needed is not kept for the life of the session.
    if (capacity > 65536) {
      pfree(items);
      items = nullptr;
      capacity = 0;
    }
  }
};

NoteList<EnqueueNote> enqueues;
NoteList<ClaimNote> claims;
NoteList<SettleNote> settles;
NoteList<PutBack> put_backs;
uint64 blamed = 0;    // nonce of the claim that the running verb fails for, if it does
TimestampTz undone_at = 0;
int verb_start = -1;  // index of the first claim of the verb that is running; -1 between verbs
LaneKey held_lane;
Range held_range;
bool holding = false;
int32 looking_at = 0;  // queue
LaneKey swept_lane;
bool sweeping = false;
int needed_sync = SYNCHRONOUS_COMMIT_OFF;
int saved_sync = -1;

Range one_slot(BlockNumber block, uint8 index, uint16 flags, uint64 nonce) { return Range{block, index, 1, flags, nonce}; }

// A waiting session may have looked while this one held the only work there was, and gone to sleep. What a claim passes
// over and puts back is no news to those who LISTEN, or claims of two classes would tell each other for ever; what a failed
// one gives back is.
void give_back(uint64 mine, bool failed) {
  uint64 ready = 0;
  bool later = false;
  if (holding && held_range.count > 0) {
    publish_by_key(held_lane, held_range, 0);
    ready += held_range.count;
  }
  holding = false;
  for (int i = 0; i < put_backs.count; i++) {
    const PutBack& p = put_backs.items[i];
    publish_by_key(p.lane, p.range, p.at);
    if (p.at == 0)
      ready += p.range.count;
    else
      later = true;
  }
  put_backs.count = 0;
  if (failed)
    wake_waiters(MyDatabaseId, looking_at, ready);
  else if (ready > mine)
    wake_sessions(MyDatabaseId, looking_at, ready - mine);
  if (later) note_for_notify(MyDatabaseId, looking_at, kNotifyLook);
  if (sweeping) want_sweep(swept_lane, 0);
  sweeping = false;
}

// The part of a list that belongs to the subtransaction (or one of its committed children) is its tail: notes are added
// in the order of time, and a committed child's notes are handed to its parent.
template <typename T>
int tail_of(const NoteList<T>& list, SubTransactionId sub) {
  int i = list.count;
  while (i > 0 && list.items[i - 1].sub >= sub) i--;
  return i;
}

void void_claims(int from) {
  for (int i = from; i < claims.count; i++) {
    const ClaimNote& c = claims.items[i];
    uint16 flags = kRangeVoid;
    if (verb_start >= 0 && i >= verb_start && c.nonce != blamed) flags |= kRangeFree;
    publish_by_key(c.lane, one_slot(c.block, c.index, flags, c.nonce), 0);
    wake_waiters(MyDatabaseId, c.queue_id, 1);
  }
  claims.count = from;
  if (verb_start > from) verb_start = -1;
  blamed = 0;
}

// Nobody else will say that the message is claimable again: its lease runs on until the deadline.
void unsettle(int from) {
  for (int i = from; i < settles.count; i++) {
    const SettleNote& s = settles.items[i];
    publish_by_key(s.lane, one_slot(s.block, s.index, 0, 0), Max(s.deadline, undone_at));
  }
  settles.count = from;
}

void tell(int32 queue_id, uint64 ready, bool later) {
  wake_waiters(MyDatabaseId, queue_id, ready);
  if (later) note_for_notify(MyDatabaseId, queue_id, kNotifyLook);
}

void publish_at_commit() {
  int32 queue_id = 0;
  uint64 ready = 0;
  bool later = false;
  for (int i = 0; i < enqueues.count; i++) {
    const EnqueueNote& e = enqueues.items[i];
    publish_committed(e.lane, e.range, e.page_ordinal, e.due, e.first);
    if (e.queue_id != queue_id) {
      tell(queue_id, ready, later);
      queue_id = e.queue_id;
      ready = 0;
      later = false;
    }
    ready += e.due == 0 ? e.range.count : 1;  // for a later one, somebody has to know when to look
    later |= e.due != 0;
  }
  tell(queue_id, ready, later);
  for (int i = 0; i < settles.count; i++) {
    const SettleNote& s = settles.items[i];
    if (!s.release) continue;
    publish_by_key(s.lane, one_slot(s.block, s.index, 0, 0), s.due);
    tell(s.queue_id, 1, s.due != 0);
  }
}

void forget_notes() {
  enqueues.clear();
  claims.clear();
  settles.clear();
  undone_at = 0;
  verb_start = -1;
}

// COMMIT PREPARED happens in another session, later, and calls nobody: the mover asks after the id. What does not fit
// is found by a sweep.
void add_prepared(const PreparedRange& p) {
  for (auto& slot : shared->prepared) {
    if (slot.used) continue;
    slot = p;
    slot.used = true;
    pg_atomic_fetch_add_u32(&shared->prepared_count, 1);
    return;
  }
  want_sweep(p.lane, GetCurrentTimestamp() + 1000000);
}

void publish_at_prepare() {
  if (enqueues.count == 0 && settles.count == 0) return;
  uint64 xid = full_xid_of(GetTopTransactionIdIfAny());
  LWLockAcquire(shared->prepared_lock, LW_EXCLUSIVE);
  for (int i = 0; i < enqueues.count; i++) {
    const EnqueueNote& e = enqueues.items[i];
    add_prepared(PreparedRange{true, xid, e.lane, e.range, e.queue_id, e.due});
  }
  for (int i = 0; i < settles.count; i++) {
    const SettleNote& s = settles.items[i];
    add_prepared(PreparedRange{true, xid, s.lane, one_slot(s.block, s.index, 0, 0), s.queue_id, s.release ? s.due : s.deadline});
  }
  LWLockRelease(shared->prepared_lock);
}

// The variable alone is not enough: what the commit waits for is kept by its assign hook.
void set_sync(int value) {
  synchronous_commit = value;
  assign_synchronous_commit(value, nullptr);
}

// At PRE_COMMIT and not in the verb: a value set by the verb could be lowered later in the same transaction.
void raise_sync() {
  if (needed_sync >= SYNCHRONOUS_COMMIT_LOCAL_FLUSH) ForceSyncCommit();
  if (needed_sync > synchronous_commit) {
    saved_sync = synchronous_commit;
    set_sync(needed_sync);
  }
}

void restore_sync() {
  if (saved_sync >= 0) set_sync(saved_sync);
  saved_sync = -1;
  needed_sync = SYNCHRONOUS_COMMIT_OFF;
}

void on_transaction(XactEvent event, void*) {
  if (!shared) return;
  if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE) raise_sync();
  if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE) restore_sync();
  switch (event) {
    case XACT_EVENT_COMMIT:
      // Runs after the rows are visible to others: the frontier is read after that, never before.
      publish_at_commit();
      give_back(0, false);
      forget_notes();
      break;
    case XACT_EVENT_ABORT:
      give_back(0, true);
      unsettle(0);
      void_claims(0);
      forget_notes();
      break;
    case XACT_EVENT_PRE_PREPARE:
      if (claims.count > 0)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot PREPARE a transaction that has claimed messages"),
                        errhint("Claim in a transaction of its own; a settlement may be prepared.")));
      publish_at_prepare();
      break;
    case XACT_EVENT_PREPARE:
      give_back(0, false);
      forget_notes();
      break;
    default:
      break;
  }
}

template <typename T>
void hand_to_parent(NoteList<T>* list, SubTransactionId sub, SubTransactionId parent) {
  for (int i = tail_of(*list, sub); i < list->count; i++) list->items[i].sub = parent;
}

void on_subtransaction(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void*) {
  if (!shared) return;
  if (event == SUBXACT_EVENT_COMMIT_SUB) {
    hand_to_parent(&enqueues, sub, parent);
    hand_to_parent(&claims, sub, parent);
    hand_to_parent(&settles, sub, parent);
  } else if (event == SUBXACT_EVENT_ABORT_SUB) {
    give_back(0, true);
    unsettle(tail_of(settles, sub));
    void_claims(tail_of(claims, sub));
    enqueues.count = tail_of(enqueues, sub);
  }
}

}  // namespace

void register_xact_callbacks() {
  RegisterXactCallback(on_transaction, nullptr);
  RegisterSubXactCallback(on_subtransaction, nullptr);
}

bool wait_for_standbys = true;

void require_durability(Durability durability) {
  if (!wait_for_standbys && durability == Durability::kReplicated) durability = Durability::kLocal;
  int wanted = durability == Durability::kReplicated ? SYNCHRONOUS_COMMIT_REMOTE_FLUSH
               : durability == Durability::kLocal    ? SYNCHRONOUS_COMMIT_LOCAL_FLUSH
                                                     : SYNCHRONOUS_COMMIT_OFF;
  if (durability == Durability::kReplicated && !SyncRepStandbyNames[0])
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("the queue's durability class needs a synchronous standby"),
                    errhint("Set synchronous_standby_names, or change the class with alter_queue(durability => 'local').")));
  if (wanted > needed_sync) needed_sync = wanted;
}

void reserve_enqueue_notes(int n) { enqueues.reserve(n); }

void note_enqueued(const LaneKey& lane, const Range& range, uint32 page_ordinal, TimestampTz due, bool first, int32 queue_id) {
  SubTransactionId sub = GetCurrentSubTransactionId();
  if (enqueues.count > 0) {
    EnqueueNote& last = enqueues.items[enqueues.count - 1];
    if (last.lane == lane && last.range.block == range.block && last.sub == sub && last.due == due &&
        last.first == first && last.range.first + last.range.count == range.first) {
      last.range.count = static_cast<uint8>(last.range.count + range.count);
      return;
    }
  }
  enqueues.items[enqueues.count++] = EnqueueNote{lane, range, page_ordinal, sub, due, queue_id, first};
}

void reserve_claim_notes(int n) { claims.reserve(n); }

void note_claim(const LaneKey& lane, BlockNumber block, uint8 index, uint64 nonce, int32 queue_id) {
  claims.items[claims.count++] = ClaimNote{lane, block, GetCurrentSubTransactionId(), nonce, queue_id, index};
}

void begin_verb() { verb_start = claims.count; }
void blame_claim(uint64 nonce) { blamed = nonce; }
void end_verb() { verb_start = -1; }

void offer_undone_after(TimestampTz at) { undone_at = at; }
void reserve_settle_notes(int n) { settles.reserve(n); }

void note_settled(const LaneKey& lane, BlockNumber block, uint8 index, TimestampTz due, TimestampTz deadline, bool release, int32 queue_id) {
  settles.items[settles.count++] = SettleNote{lane, block, GetCurrentSubTransactionId(), due, deadline, queue_id, index, release};
}

void begin_looking(int32 queue_id) {
  put_backs.reserve(1024);
  looking_at = queue_id;
}

void hold_range(const LaneKey& lane, const Range& range) {
  held_lane = lane;
  held_range = range;
  holding = true;
}

void shrink_range(int looked_at) {
  held_range.first = static_cast<uint8>(held_range.first + looked_at);
  held_range.count = static_cast<uint8>(held_range.count - looked_at);
}

void drop_range() { holding = false; }

void put_back(const LaneKey& lane, const Range& range, TimestampTz at) {
  if (put_backs.count > 0) {
    PutBack& last = put_backs.items[put_backs.count - 1];
    if (last.lane == lane && last.range.block == range.block && last.at == at && last.range.flags == range.flags && range.flags == 0 &&
        last.range.first + last.range.count == range.first) {
      last.range.count = static_cast<uint8>(last.range.count + range.count);
      return;
    }
  }
  if (put_backs.count == put_backs.capacity) {
    publish_by_key(lane, range, at);
    return;
  }
  put_backs.items[put_backs.count++] = PutBack{lane, range, at};
}

void end_looking(bool found_for_myself) { give_back(found_for_myself ? 1 : 0, false); }

void note_sweep(const LaneKey& lane) {
  swept_lane = lane;
  sweeping = true;
}

void sweep_done() { sweeping = false; }

}  // namespace baton
