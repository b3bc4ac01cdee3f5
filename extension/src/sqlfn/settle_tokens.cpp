// See settle_tokens.hpp. A slot is decided and changed in one critical section under its page's exclusive lock, by the
// clock read after the lock was taken. Transaction status is looked up without the lock; the slot is compared again.
#include "settle_tokens.hpp"

#include "../core/backoff.hpp"
#include "../core/lane.hpp"
#include "../core/verdict.hpp"
#include "../leasemap/long_claims.hpp"
#include "../leasemap/move.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/row.hpp"
#include "../leasemap/write_rows.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "../retained/retain.hpp"
#include "set_aside.hpp"
#include "settle.hpp"

namespace baton {
namespace {

constexpr int kSettlePollMs = 5;

bool joins_transaction(Verdict v) { return v <= Verdict::kQuarantine; }

// What the token says about itself, before any page is touched.
void read_token(Settlement* s, const SipKey& key) {
  s->parsed = s->token_text &&
              parse_token(VARDATA_ANY(s->token_text), VARSIZE_ANY_EXHDR(s->token_text), key, &s->token) && s->token.database == MyDatabaseId;
  s->outcome = Outcome::kInvalidToken;
  s->queue = nullptr;
  s->lsn = InvalidXLogRecPtr;
  s->exhausted = false;
  s->deferred = false;
  s->expiry_known = false;
  s->expires_at = kNever;
  s->elsewhere = false;
  s->moving = false;
  s->in_long = false;
  s->must_flush = false;
  memset(&s->slot, 0, sizeof(s->slot));
  if (!s->parsed) return;
  s->outcome = Outcome::kStaleEpoch;
  s->queue = find_queue_by_id(static_cast<int32>(s->token.queue));
  if (!s->queue) return;
  if (!has_privilege(s->queue, ACL_UPDATE)) {
    s->outcome = Outcome::kForbidden;
    return;
  }
  if (static_cast<uint32>(s->queue->incarnation) != s->token.incarnation || s->token.segment >= s->queue->segment_count) return;
  s->place = Place{s->token.block, s->token.index};
  s->outcome = Outcome::kAcked;  // goes on to the fence
}

bool goes_on(const Settlement& s) { return s.outcome == Outcome::kAcked; }

int by_place(const void* a, const void* b) {
  const Settlement* x = *static_cast<Settlement* const*>(a);
  const Settlement* y = *static_cast<Settlement* const*>(b);
  if (x->token.queue != y->token.queue) return x->token.queue < y->token.queue ? -1 : 1;
  if (x->token.segment != y->token.segment) return x->token.segment < y->token.segment ? -1 : 1;
  if (x->place.block != y->place.block) return x->place.block < y->place.block ? -1 : 1;
  if (x->place.index != y->place.index) return x->place.index < y->place.index ? -1 : 1;
  return x->ord < y->ord ? -1 : 1;
}

// Works out what the verdict does to a slot that the token owns; *out is the slot as it will be.
void apply_verdict(Settlement* s, const Slot& owned, uint64 xid, Slot* out) {
  const Queue* q = s->queue;
  *out = owned;
  auto settle = [&](SettleKind kind) {
    out->state = static_cast<uint8>(SlotState::kSettling);
    set_slot_kind(*out, kind);
    set_slot_xid(*out, xid);
  };
  switch (s->verdict) {
    case Verdict::kAck:
      settle(SettleKind::kAcked);
      s->outcome = Outcome::kAcked;
      break;
    case Verdict::kQuarantine:
      settle(SettleKind::kQuarantined);
      s->outcome = Outcome::kQuarantined;
      break;
    case Verdict::kRelease:
    case Verdict::kReleaseUnfailed: {
      bool failed = s->verdict == Verdict::kRelease;
      if (failed && owned.failures + 1 >= q->max_attempts) {
        // The last failure and the quarantine are one transaction: the count is not written ahead of it.
        s->exhausted = true;
        settle(SettleKind::kQuarantined);
        s->outcome = Outcome::kQuarantined;
        break;
      }
      int64 wait = s->has_delay ? s->delay_us : spread_backoff_us(q->backoff, q->max_backoff, Max(owned.failures + (failed ? 1 : 0), 1), owned.id);
      s->due = wait > 0 ? s->now + wait : 0;
      if (s->expires_at <= Max(s->now, s->due)) {
        // It would be ready too late, if ever: nobody waits for that.
        settle(keeps_expired(q) ? SettleKind::kQuarantined : SettleKind::kExpired);
        s->outcome = Outcome::kExpired;
        break;
      }
      // Nobody claims from a long segment: the message goes back to its queue.
      s->deferred = s->in_long || (wait > 0 && waits_in_bucket(q, s->due, s->now));
      if (s->deferred) {
        settle(SettleKind::kDeferred);
        s->outcome = wait > 0 ? Outcome::kScheduled : Outcome::kReleased;
        break;
      }
      out->due_delta = pack_due(wait > 0 ? s->due : s->now - kDueUnit, owned.deadline);
      if (wait > 0) s->due = unpack_due(out->due_delta, owned.deadline);
      settle(failed ? SettleKind::kReleased : SettleKind::kReturned);
      s->outcome = wait > 0 ? Outcome::kScheduled : Outcome::kReleased;
      break;
    }
    case Verdict::kHandBack:
      if (owned.started_ms != 0) {
        s->outcome = Outcome::kAlreadyStarted;
        break;
      }
      ready_slot(*out, SettleKind::kHandedBack, 0, false);
      s->outcome = Outcome::kHandedBack;
      break;
    case Verdict::kStart:
      start_slot(*out, s->now, s->token.claimed_at, Min(s->token.claimed_at + q->max_lifetime, q->expiry_ends_lease ? s->expires_at : kNever));
      s->must_flush = out->deadline > owned.deadline;
      s->outcome = Outcome::kStarted;
      break;
    case Verdict::kExtend: {
      // Who only keeps it in a buffer must not keep it for ever.
      if (waits_for_start(owned)) {
        s->outcome = Outcome::kNotStarted;
        break;
      }
      int64 lease = s->has_lease ? s->lease_us : q->lease;
      int64 deadline = s->now + lease;
      // The token knows the time of the claim; out of the slot it comes rounded, and each extension would round again.
      if (deadline - s->token.claimed_at > q->max_lifetime) {
        s->outcome = Outcome::kLifetimeExceeded;
        break;
      }
      if (q->expiry_ends_lease && deadline > s->expires_at) {
        s->outcome = Outcome::kExpiryExceeded;
        break;
      }
      lengthen_slot(*out, deadline, s->token.claimed_at);
      s->must_flush = true;
      s->outcome = Outcome::kExtended;
      break;
    }
  }
}

// What a release and, where the queue says so, an extension and a start do depends on when the message expires. Its row says that, and
// is not read under the page's lock.
bool needs_expiry(const Settlement& s, const Slot& slot) {
  if (s.expiry_known || !slot_expires(slot) || slot.id != s.token.id || slot.nonce != s.token.nonce) return false;
  return s.verdict == Verdict::kRelease || s.verdict == Verdict::kReleaseUnfailed ||
         ((s.verdict == Verdict::kExtend || s.verdict == Verdict::kStart) && s.queue->expiry_ends_lease);
}

int slot_fragments(Fragment* f, int index) {
  uint16 at = slot_offset(index);
  f[0] = Fragment{static_cast<uint16>(at + offsetof(Slot, state)), offsetof(Slot, id) - offsetof(Slot, state)};
  f[1] = Fragment{static_cast<uint16>(at + offsetof(Slot, deadline)), sizeof(Slot) - offsetof(Slot, deadline)};
  return 2;
}

// An acknowledgement changes state, kind and xid only, unless an aborted settlement is overwritten with it.
int ack_fragments(Fragment* f, int index) {
  uint16 at = slot_offset(index);
  f[0] = Fragment{static_cast<uint16>(at + offsetof(Slot, state)), offsetof(Slot, failures) - offsetof(Slot, state)};
  return 1;
}

struct Group {
  Settlement** items;
  int count;
  Segment segment;
  BlockNumber block;
  uint64 xid;
};

// Looks at the page and works out outcomes of open transactions on it, without a lock. False: not a page of the map.
bool look_up(const Group& g, PageCopy* copy) {
  if (!copy_slots(g.segment.map, g.block, 0, kSlotsPerPage, nullptr, copy)) return false;
  // Only the slots that are asked about matter.
  int n = copy->count;
  for (int i = 0; i < n; i++) {
    copy->resolved[i] = copy->slots[i];
    copy->status[i] = XidStatus::kCommitted;
  }
  PageCopy one;
  for (int k = 0; k < g.count; k++) {
    int i = g.items[k]->place.index;
    if (i >= n || !slot_has_open_xid(copy->slots[i])) continue;
    one.count = 1;
    one.slots[0] = copy->slots[i];
    resolve_copy(g.segment.heap, &one);
    copy->resolved[i] = one.resolved[0];
    copy->status[i] = one.status[0];
  }
  return true;
}

// Never changes for the message that the token is of, so that one look is enough.
void look_up_expiry(const Group& g) {
  PageCopy one;
  for (int k = 0; k < g.count; k++) {
    Settlement* s = g.items[k];
    if (!copy_slots(g.segment.map, g.block, s->place.index, 1, nullptr, &one) || one.count != 1 || !needs_expiry(*s, one.slots[0])) continue;
    s->expiry_known = true;
    if (!row_expires_at(g.segment.heap, one.slots[0], &s->expires_at)) s->expires_at = kNever;
  }
}

// The claim that this token is of was moved from here, or is being moved by a transaction that never lasts.
void note_move(Settlement* s, const Slot& slot) {
  s->elsewhere = false;
  s->moving = false;
  if (slot_kind(slot) != SettleKind::kMoved || (s->outcome != Outcome::kSettling && s->outcome != Outcome::kAlreadySettled)) return;
  if (slot.held_ms == 0) {
    // No claim was moved, but a message that this token had given back before.
    s->outcome = Outcome::kAlreadySettled;
    return;
  }
  s->moving = s->outcome == Outcome::kSettling;
  s->elsewhere = slot_state(slot) == SlotState::kGone;
  // Unless it is found there: settled, too long ago to say more.
  if (s->elsewhere) s->outcome = Outcome::kStaleEpoch;
}

// One critical section for all tokens on one page.
void settle_page(const Group& g, PageCopy* copy) {
  Slot after[kSlotsPerPage];
  bool change[kSlotsPerPage];
  Fragment fragments[kMaxFragments];
  QueueHint* queue = queue_hint(MyDatabaseId, g.items[0]->queue->id);
  for (bool looked = false;;) {
    if (looked && !look_up(g, copy)) break;
    Buffer buf = ReadBuffer(g.segment.map, g.block);
    LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
    Page page = BufferGetPage(buf);
    if (!page_is_map_page(page)) {
      UnlockReleaseBuffer(buf);
      break;
    }
    Slot* slots = map_slots(page);
    int used = map_slot_count(page);
    // Here and not before: a fence passes once through the lock of each page.
    uint32 fenced = pg_atomic_read_u32(&queue->fenced_incarnation);
    bool unknown = false;
    bool expiry_unknown = false;
    for (int k = 0; k < g.count; k++)
      expiry_unknown |= g.items[k]->place.index < used && needs_expiry(*g.items[k], slots[g.items[k]->place.index]);
    for (int k = 0; k < g.count && !unknown; k++) {
      int i = g.items[k]->place.index;
      if (i >= used || !slot_has_open_xid(slots[i])) continue;
      unknown = !looked || i >= copy->count || memcmp(&slots[i], &copy->slots[i], sizeof(Slot)) != 0;
    }
    if (unknown || expiry_unknown) {
      UnlockReleaseBuffer(buf);
      CHECK_FOR_INTERRUPTS();
      if (expiry_unknown) look_up_expiry(g);
      looked |= unknown;
      continue;
    }
    TimestampTz now = clock_now();
    TimestampTz began = sessions_began();
    int fragment_count = 0;
    int changes = 0;
    memset(change, 0, sizeof(change));
    for (int k = 0; k < g.count; k++) {
      Settlement* s = g.items[k];
      s->now = now;
      int i = s->place.index;
      if (i >= used || s->token.incarnation == fenced) {
        s->outcome = Outcome::kStaleEpoch;
        continue;
      }
      Slot current = slots[i];
      XidStatus status = XidStatus::kCommitted;
      if (change[i]) {
        // The same token twice in one call: the first has settled it.
        current = after[i];
        status = XidStatus::kMine;
      } else if (slot_has_open_xid(current)) {
        current = copy->resolved[i];
        status = copy->status[i];
      } else {
        end_orphan(current, began);
      }
      s->slot = current;
      s->outcome = judge(current, status, s->token, now);
      note_move(s, current);
      if (s->outcome != Outcome::kAcked) continue;
      Slot changed;
      apply_verdict(s, current, g.xid, &changed);
      if (!succeeded(s->outcome)) continue;
      if (!change[i]) {
        bool plain = s->verdict == Verdict::kAck && !slot_has_open_xid(slots[i]);
        fragment_count += plain ? ack_fragments(fragments + fragment_count, i) : slot_fragments(fragments + fragment_count, i);
      }
      change[i] = true;
      after[i] = changed;
      s->slot = changed;
      changes++;
    }
    XLogRecPtr lsn = InvalidXLogRecPtr;
    if (changes > 0) {
      map_log_begin(g.segment.map);
      START_CRIT_SECTION();
      for (int i = 0; i < used; i++)
        if (change[i]) slots[i] = after[i];
      lsn = map_log(g.segment.map, buf, fragments, fragment_count);
      END_CRIT_SECTION();
    }
    LaneKey key = lane_key(g.segment.map, map_tail(page)->lane);
    for (int k = 0; k < g.count; k++) {
      Settlement* s = g.items[k];
      if (!succeeded(s->outcome)) continue;
      s->lsn = lsn;
      bool release = !s->deferred && (s->outcome == Outcome::kReleased || s->outcome == Outcome::kScheduled);
      if (joins_transaction(s->verdict))
        note_settled(key, g.block, s->place.index, release ? s->due : 0, s->slot.deadline, release, s->queue->id);
    }
    UnlockReleaseBuffer(buf);
    // After the slot has changed, never before: a claimer could look, find nothing, and drop the only hint.
    for (int k = 0; k < g.count; k++) {
      Settlement* s = g.items[k];
      if (s->outcome == Outcome::kHandedBack) {
        publish_by_key(key, Range{g.block, s->place.index, 1, 0, 0}, 0);
        wake_waiters(MyDatabaseId, s->queue->id, 1);
      } else if (s->must_flush) {
        want_sweep(key, s->slot.deadline);
      }
    }
    return;
  }
  for (int k = 0; k < g.count; k++) g.items[k]->outcome = Outcome::kStaleEpoch;
}

// Acknowledged messages of a queue with retention, before their rows are deleted.
void retain_acked(const Group& g) {
  const Queue* queue = g.items[0]->queue;
  if (queue->retention == 0) return;
  Slot slots[kSlotsPerPage];
  int n = 0;
  for (int k = 0; k < g.count; k++)
    if (g.items[k]->outcome == Outcome::kAcked) slots[n++] = g.items[k]->slot;
  retain_rows(queue, g.segment.heap, slots, n, g.items[0]->now);
}

void move_rows(const Group& g) {
  debug_here("settle-rows");
  retain_acked(g);
  for (int k = 0; k < g.count; k++) {
    Settlement* s = g.items[k];
    if (s->outcome == Outcome::kAcked) {
      delete_row(g.segment.heap, s->slot);
    } else if (s->outcome == Outcome::kQuarantined) {
      QuarantineEvidence e{s->exhausted ? "max_attempts" : "verb", s->reason, s->has_error, s->error, s->exhausted};
      quarantine_row(s->queue, g.segment.heap, s->slot, e);
    } else if (s->outcome == Outcome::kExpired && keeps_expired(s->queue)) {
      QuarantineEvidence e{"expired", s->reason, s->has_error, s->error, s->verdict == Verdict::kRelease};
      quarantine_row(s->queue, g.segment.heap, s->slot, e);
    } else if (s->outcome == Outcome::kExpired) {
      delete_row(g.segment.heap, s->slot);
    } else if (s->outcome == Outcome::kReleased || s->outcome == Outcome::kScheduled) {
      bool failed = s->verdict == Verdict::kRelease;
      if (s->deferred) defer_row(s->queue, g.segment, s->slot, s->slot.failures + (failed ? 1 : 0), s->due);
      if (!s->reason && !s->has_error) continue;
      add_evidence(s->queue->id, s->slot, failed, "release", s->reason, s->has_error, s->error);
    } else if (s->outcome == Outcome::kHandedBack && s->in_long) {
      // It is ready at once, and claimed from its queue when it is there. Should this be rolled back, the mover sees to it.
      long_noted(s->now);
      MoveItem item{s->slot, s->place, 0};
      // It may have come here after this statement's snapshot.
      PushActiveSnapshot(GetLatestSnapshot());
      (void)move_messages(s->queue, g.segment, &item, 1, MoveTarget::kQueue);
      PopActiveSnapshot();
    }
  }
}

void settle_group(Group* g, PageCopy* copy) {
  bool joins = false;
  for (int k = 0; k < g->count; k++) joins |= joins_transaction(g->items[k]->verdict) || (g->items[k]->in_long && g->items[k]->verdict == Verdict::kHandBack);
  if (joins) {
    g->xid = current_full_xid();
    CheckCmdReplicaIdentity(g->segment.heap, CMD_DELETE);
    require_durability(g->items[0]->queue->durability);
    reserve_settle_notes(g->count);
  }
  settle_page(*g, copy);
  if (joins) move_rows(*g);
}

// The place is of another life of the map. A claim that was moved away before the segment was reclaimed goes on elsewhere.
void refuse_place(Settlement* s) {
  s->outcome = Outcome::kStaleEpoch;
  s->elsewhere = true;
}

void settle_once(Settlement** items, int n, PageCopy* copy) {
  qsort(items, static_cast<size_t>(n), sizeof(Settlement*), by_place);
  for (int a = 0; a < n;) {
    Queue* q = items[a]->queue;
    uint16 number = items[a]->token.segment;
    Segment segment;
    if (!open_segment_if_there(q->heap[number], RowExclusiveLock, &segment)) {
      // The queue was dropped while its lock was waited for; the tokens of other queues are none the worse.
      while (a < n && items[a]->queue == q && items[a]->token.segment == number) items[a++]->outcome = Outcome::kStaleEpoch;
      continue;
    }
    uint64 epoch = view_lane(segment.map, kDefaultLane).epoch;
    BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
    while (a < n && items[a]->queue == q && items[a]->token.segment == number) {
      int b = a;
      int m = a;
      // Tokens of one page can carry different epochs: one of another epoch has no business here.
      for (; b < n && b - a < kSlotsPerPage && items[b]->queue == q && items[b]->token.segment == number &&
             items[b]->place.block == items[a]->place.block;
           b++) {
        Settlement* s = items[b];
        if (s->token.epoch != epoch || s->place.block == kMetaBlock || s->place.block >= blocks) {
          refuse_place(s);
          continue;
        }
        items[b] = items[m];
        items[m++] = s;
      }
      if (m > a) {
        Group g{items + a, m - a, segment, items[a]->place.block, 0};
        settle_group(&g, copy);
      }
      a = b;
    }
    close_segment(segment, NoLock);
  }
}

// ---- claims that were moved to a long segment

int by_queue_and_place(const void* a, const void* b) {
  const Settlement* x = *static_cast<Settlement* const*>(a);
  const Settlement* y = *static_cast<Settlement* const*>(b);
  if (x->token.queue != y->token.queue) return x->token.queue < y->token.queue ? -1 : 1;
  if (x->place.block != y->place.block) return x->place.block < y->place.block ? -1 : 1;
  if (x->place.index != y->place.index) return x->place.index < y->place.index ? -1 : 1;
  return x->ord < y->ord ? -1 : 1;
}

// Those whose claims are in this long segment. Returns how many there were.
int settle_in_long_segment(const Segment& segment, Settlement** items, int n, Settlement** found, PageCopy* copy) {
  int m = 0;
  for (int i = 0; i < n; i++) {
    Settlement* s = items[i];
    if (!s->elsewhere) continue;
    LongFind find = find_in_long(segment, s->queue->id, s->token.id, s->token.generation, s->token.nonce, &s->place);
    if (find == LongFind::kFound || find == LongFind::kLapsed) found[m++] = s;
    if (find == LongFind::kOther) s->outcome = Outcome::kStaleGeneration;
  }
  qsort(found, static_cast<size_t>(m), sizeof(Settlement*), by_queue_and_place);
  for (int a = 0; a < m;) {
    int b = a;
    while (b < m && b - a < kSlotsPerPage && found[b]->queue == found[a]->queue && found[b]->place.block == found[a]->place.block) {
      found[b]->in_long = true;
      found[b++]->elsewhere = false;
    }
    Group g{found + a, b - a, segment, found[a]->place.block, 0};
    settle_group(&g, copy);
    a = b;
  }
  return m;
}

// After all others, so that the order is one for everybody. A claim can be moved on from one long segment to the other while
// they are looked at, hence the second round.
void settle_in_long(Settlement** items, int n, PageCopy* copy) {
  auto** found = static_cast<Settlement**>(palloc(sizeof(Settlement*) * static_cast<Size>(Max(n, 1))));
  bool again = true;
  for (int round = 0; round < 3 && again; round++) {
    for (int t = 0; t < kLongTables; t++) {
      Oid table = shared_table_oid(SharedKind::kLong, t);
      Segment segment;
      if (!OidIsValid(table) || !open_segment_if_there(table, RowExclusiveLock, &segment)) continue;
      int settled = 0;
      if (RelationGetNumberOfBlocks(segment.map) > kMetaBlock + 1) settled = settle_in_long_segment(segment, items, n, found, copy);
      close_segment(segment, settled > 0 ? NoLock : RowExclusiveLock);
    }
    again = false;
    for (int i = 0; i < n; i++) again = again || (items[i]->elsewhere && items[i]->in_long);
  }
  pfree(found);
}

void settle_everywhere(Settlement** items, int n) {
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  settle_once(items, n, copy);
  bool elsewhere = false;
  for (int i = 0; i < n; i++) elsewhere |= items[i]->elsewhere;
  if (elsewhere) settle_in_long(items, n, copy);
  pfree(copy);
}

// Waits for the other settlement of a single token to end. Bounded, so no deadlock can last.
bool wait_for_other(TimestampTz started) {
  if (GetCurrentTimestamp() - started >= static_cast<int64>(settle_timeout_ms) * 1000) return false;
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kSettlePollMs, wait_event("BatonSettle"));
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
  return true;
}

void count_outcomes(const Settlement* items, int n) {
  for (int i = 0; i < n; i++) {
    if (!items[i].queue) continue;
    int32 id = items[i].queue->id;
    switch (items[i].outcome) {
      case Outcome::kAcked:
        baton::count(id, Counter::kAcked, 1);
        break;
      case Outcome::kReleased:
      case Outcome::kScheduled:
      case Outcome::kHandedBack:
        baton::count(id, Counter::kReleased, 1);
        break;
      case Outcome::kQuarantined:
        baton::count(id, Counter::kQuarantined, 1);
        break;
      case Outcome::kExpired:
        baton::count(id, Counter::kExpired, 1);
        break;
      default:
        if (!succeeded(items[i].outcome)) baton::count(id, Counter::kFenced, 1);
        break;
    }
  }
}

}  // namespace

void settle_tokens(Settlement* items, int count, bool may_wait) {
  SipKeyPair pair = token_key();
  SipKey key{pair.k0, pair.k1};
  auto** order = static_cast<Settlement**>(palloc(sizeof(Settlement*) * static_cast<Size>(Max(count, 1))));
  bool pushed = push_snapshot_if_none();
  TimestampTz started = GetCurrentTimestamp();
  int left = count;
  for (int i = 0; i < count; i++) order[i] = &items[i];
  while (left > 0) {
    int n = 0;
    for (int i = 0; i < left; i++) {
      read_token(order[i], key);
      if (goes_on(*order[i])) order[n++] = order[i];
    }
    debug_here("settle-read");
    settle_everywhere(order, n);
    // Another settlement is waited for by the single forms only; a claim that is just being moved, which takes a moment and
    // waits for nobody, by all. Afterwards everything is looked at again from the start.
    left = 0;
    for (int i = 0; i < n; i++)
      if (order[i]->outcome == Outcome::kSettling && (order[i]->moving || (may_wait && count == 1))) order[left++] = order[i];
    if (left > 0 && !wait_for_other(started)) break;
  }
  if (pushed) PopActiveSnapshot();
  count_outcomes(items, count);
  pfree(order);
}

}  // namespace baton
