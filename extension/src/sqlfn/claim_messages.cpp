// See claim_messages.hpp. The order that makes it safe: the frontier is moved first (reserve), only then are rows looked
// at, and the slot is decided under its page's exclusive lock, where it must still be what was looked at. Heap pages and
// map pages are never locked together.
#include "claim_messages.hpp"

#include "../core/backoff.hpp"
#include "../core/expiry.hpp"
#include "../leasemap/due.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/row_look.hpp"
#include "../leasemap/sweep.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/shmem.hpp"
#include "../pg/subtransaction.hpp"
#include "../pg/xid_status.hpp"
#include "../retained/retain.hpp"
#include "long_return.hpp"
#include "session_claims.hpp"
#include "settle.hpp"

namespace baton {
namespace {

constexpr int64 kLockedRetryUs = 100000;   // a row that plain SQL has locked is looked at again after this
constexpr int kMaxPassedOver = 1000;       // messages of other classes, or too large, that one claim walks over
constexpr int kMaxSetAside = 100;
constexpr int kMaxExpired = 10000;         // expired messages that one claim walks over, when the mover has not removed them

struct Candidate {
  int index;  // in the page copy
  HeapTuple row;
  TimestampTz expires_at;  // kNever: it does not
};

// A message that must not be handed out: dealt with when the reserved ranges have been given back.
struct Aside {
  Segment segment;
  int segment_no;
  Slot slot;
  Place place;
  SettleKind kind;
  const char* cause;
};

struct Claimer {
  const ClaimRequest* request;
  ClaimResult* result;
  Snapshot snapshot;
  TimestampTz now;
  int64 bytes;
  int passed_over;
  int expired;
  bool done;
  int came_back;  // ranges that this claim has published itself: it looks at them too
  int stale;      // slots of the range that are nobody's to claim any more: settled, or held
  Aside asides[kMaxSetAside];
  int aside_count;
  PageCopy* copy;
  // the lane being served
  Segment segment;
  int segment_no;
  LaneKey key;
  LaneHint* hint;
  uint64 epoch;
};

Range slot_range(BlockNumber block, int first, int count) {
  return Range{block, static_cast<uint8>(first), static_cast<uint8>(count), 0, 0};
}

bool class_matches(const Claimer& c, HeapTuple row) {
  if (!c.request->classes) return true;
  bool isnull;
  Datum given = heap_getattr(row, kRowMessageClass + 1, RelationGetDescr(c.segment.heap), &isnull);
  if (isnull) return false;
  text* name = DatumGetTextPP(given);
  ArrayIterator it = array_create_iterator(const_cast<ArrayType*>(c.request->classes), 0, nullptr);
  Datum wanted;
  bool wanted_null;
  bool found = false;
  while (!found && array_iterate(it, &wanted, &wanted_null)) {
    if (wanted_null) continue;
    text* w = DatumGetTextPP(wanted);
    found = VARSIZE_ANY_EXHDR(w) == VARSIZE_ANY_EXHDR(name) && memcmp(VARDATA_ANY(w), VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)) == 0;
  }
  array_free_iterator(it);
  return found;
}

int64 message_bytes(Relation heap, HeapTuple row) {
  int64 n = 0;
  const int columns[] = {kRowPayload, kRowPayloadBytes, kRowHeaders};
  for (int column : columns) {
    bool isnull;
    Datum d = heap_getattr(row, column + 1, RelationGetDescr(heap), &isnull);
    if (!isnull) n += static_cast<int64>(toast_raw_datum_size(d) - VARHDRSZ);
  }
  return n;
}

TimestampTz message_expiry(Relation heap, HeapTuple row) {
  bool isnull;
  Datum d = heap_getattr(row, kRowExpiresAt + 1, RelationGetDescr(heap), &isnull);
  return isnull ? kNever : DatumGetTimestampTz(d);
}

void add_aside(Claimer* c, const Slot& slot, const Place& place, SettleKind kind, const char* cause) {
  if (c->request->probe || c->aside_count == kMaxSetAside) {
    put_back(c->key, slot_range(place.block, place.index, 1), c->now + kLockedRetryUs);
    return;
  }
  c->asides[c->aside_count++] = Aside{c->segment, c->segment_no, slot, place, kind, cause};
}

// A claim that was rolled back: back to ready after the queue's backoff, with the failure counted; or set aside.
void serve_void(Claimer* c, const Range& range) {
  const Slot& s = c->copy->resolved[0];
  // Ignored when the slot has moved on: claimed again, or settled meanwhile.
  if (slot_state(s) != SlotState::kClaimed || s.nonce != range.nonce) return;
  const Queue* q = c->request->queue;
  bool failed = !(range.flags & kRangeFree);
  Place place{range.block, range.first};
  if (failed && s.failures + 1 >= q->max_attempts) {
    add_aside(c, s, place, SettleKind::kQuarantined, "max_attempts");
    return;
  }
  int64 wait = failed ? spread_backoff_us(q->backoff, q->max_backoff, s.failures + 1, s.id) : 0;
  TimestampTz due = wait > 0 ? c->now + wait : 0;
  Buffer buf = ReadBuffer(c->segment.map, range.block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Slot* on_page = &map_slots(BufferGetPage(buf))[range.first];
  bool same = memcmp(on_page, &c->copy->slots[0], sizeof(Slot)) == 0;
  if (same) {
    uint16 at = slot_offset(range.first);
    Fragment fragments[] = {{static_cast<uint16>(at + offsetof(Slot, state)), 2},
                            {static_cast<uint16>(at + offsetof(Slot, failures)), 2},
                            {static_cast<uint16>(at + offsetof(Slot, deadline)), sizeof(Slot) - offsetof(Slot, deadline)}};
    map_log_begin(c->segment.map);
    START_CRIT_SECTION();
    *on_page = s;
    ready_slot(*on_page, SettleKind::kVoid, due, failed);
    map_log(c->segment.map, buf, fragments, 3);
    END_CRIT_SECTION();
  }
  UnlockReleaseBuffer(buf);
  // The hint comes after the change: before it, a claimer could look, find nothing, and drop the only hint.
  if (!same) {
    put_back(c->key, range, 0);
  } else if (due != 0) {
    publish_timed(c->hint, c->key, due, slot_range(range.block, range.first, 1));
    note_for_notify(MyDatabaseId, q->id, kNotifyLook);
  } else {
    publish_range(c->hint, c->key, slot_range(range.block, range.first, 1));
    c->came_back++;
  }
}

enum class Choice { kSkip, kTake, kFull };

// Decides on one slot of the copy. Everything that is passed over and can become claimable without anybody saying so is
// put back.
Choice choose(Claimer* c, const Range& range, int i, int chosen, HeapTuple* row, TimestampTz* expires_at) {
  const Slot& s = c->copy->resolved[i];
  const Queue* q = c->request->queue;
  Place place{range.block, static_cast<uint8>(range.first + i)};
  switch (slot_phase(s, c->copy->status[i], c->now)) {
    case SlotPhase::kLater:
      put_back(c->key, slot_range(place.block, place.index, 1), s.deadline);
      return Choice::kSkip;
    case SlotPhase::kPending:
      // Its commit callback sees that the frontier has passed it; a sweep asks again in case that hint is lost.
      want_sweep(c->key, c->now + static_cast<int64>(sweep_interval_ms) * 1000);
      return Choice::kSkip;
    case SlotPhase::kLapsed: {
      TimestampTz at = slot_eligible_at(s, static_cast<int64>(lapse_spread_ms) * 1000);
      if (at <= c->now) break;
      put_back(c->key, slot_range(place.block, place.index, 1), at);
      return Choice::kSkip;
    }
    case SlotPhase::kDue:
      break;
    default:
      c->stale++;
      return Choice::kSkip;
  }
  if (c->result->count + chosen >= c->request->max_items) return Choice::kFull;
  switch (look_at_row(c->segment.heap, s, c->snapshot, row)) {
    case RowLook::kInvisible:
      put_back(c->key, slot_range(place.block, place.index, 1), 0);
      return Choice::kSkip;
    case RowLook::kLocked:
      put_back(c->key, slot_range(place.block, place.index, 1), c->now + kLockedRetryUs);
      return Choice::kSkip;
    case RowLook::kMissing:
      // Deleted by plain SQL. Nobody else will say that the message is gone, and its segment would never be drained.
      add_aside(c, s, place, SettleKind::kPurged, "deleted");
      return Choice::kSkip;
    case RowLook::kFree:
      break;
  }
  *expires_at = message_expiry(c->segment.heap, *row);
  if (*expires_at <= c->now) {
    add_aside(c, s, place, SettleKind::kExpired, "expired");
    if (++c->expired >= kMaxExpired) c->done = true;
    return Choice::kSkip;
  }
  bool lapsed = slot_state(s) == SlotState::kClaimed;
  if (s.failures + (lapsed ? 1 : 0) >= q->max_attempts) {
    add_aside(c, s, place, SettleKind::kQuarantined, "max_attempts");
    return Choice::kSkip;
  }
  // (The generation in a row is that of its last move.)
  if (s.generation >= static_cast<uint32>(q->claim_ceiling) || s.generation >= kMaxGeneration) {
    add_aside(c, s, place, SettleKind::kQuarantined, "claim_ceiling");
    return Choice::kSkip;
  }
  bool fits = true;
  if (c->request->max_bytes > 0) {
    int64 n = message_bytes(c->segment.heap, *row);
    fits = c->bytes + n <= c->request->max_bytes;
    if (fits && class_matches(*c, *row)) c->bytes += n;
  }
  if (!fits || !class_matches(*c, *row)) {
    put_back(c->key, slot_range(place.block, place.index, 1), 0);
    if (++c->passed_over >= kMaxPassedOver || (!fits && c->result->count + chosen > 0)) c->done = true;
    return Choice::kSkip;
  }
  return Choice::kTake;
}

// Bytes of a slot that a claim changes. Most claims are of fresh slots: neither the failures nor the last two fields.
int claim_fragments(Fragment* f, uint16 at, const Slot& before, const Slot& resolved, const ClaimRequest& r) {
  bool take = r.take;
  bool counts = resolved.failures != before.failures || slot_state(resolved) == SlotState::kClaimed;
  bool plain = before.started_ms == 0 && before.due_delta == 0 && r.start_within_us == 0;
  f[0] = Fragment{static_cast<uint16>(at + offsetof(Slot, state)),
                  static_cast<uint16>(take || counts ? offsetof(Slot, id) - offsetof(Slot, state) : 2)};
  f[1] = Fragment{static_cast<uint16>(at + offsetof(Slot, generation)),
                  static_cast<uint16>((plain ? offsetof(Slot, started_ms) : sizeof(Slot)) - offsetof(Slot, generation))};
  return 2;
}

// The fence. Slots that are no longer what was looked at are looked at again: somebody has changed them meanwhile.
void fence_claims(Claimer* c, const Range& range, Candidate* candidates, int n) {
  const ClaimRequest& r = *c->request;
  uint64 nonces[kSlotsPerPage];
  if (!pg_strong_random(nonces, sizeof(uint64) * static_cast<Size>(n)))
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not obtain random numbers for claim tokens")));
  reserve_claim_notes(n);
  uint64 take_xid = 0;
  if (r.take) {
    take_xid = current_full_xid();
    reserve_settle_notes(n);
  }
  Fragment fragments[kMaxFragments];
  int fragment_count = 0;
  int lapsed = 0;
  bool expired = false;
  int64 shortest = r.lease_us;
  Buffer buf = ReadBuffer(c->segment.map, range.block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Slot* slots = map_slots(BufferGetPage(buf)) + range.first;
  TimestampTz now = clock_now();
  int kept = 0;
  for (int k = 0; k < n; k++) {
    int i = candidates[k].index;
    expired |= candidates[k].expires_at <= now;
    if (memcmp(&slots[i], &c->copy->slots[i], sizeof(Slot)) != 0 || candidates[k].expires_at <= now) {
      // Often only a sweep that has written an outcome down: this claim looks again, rather than come back empty. Or the
      // message has expired this moment, and will be set aside.
      publish_range(c->hint, c->key, slot_range(range.block, range.first + i, 1));
      c->came_back++;
      continue;
    }
    candidates[kept++] = candidates[k];
    uint16 at = slot_offset(range.first + i);
    fragment_count += claim_fragments(fragments + fragment_count, at, slots[i], c->copy->resolved[i], r);
  }
  if (kept > 0) {
    map_log_begin(c->segment.map);
    START_CRIT_SECTION();
    for (int k = 0; k < kept; k++) {
      Slot* s = &slots[candidates[k].index];
      *s = c->copy->resolved[candidates[k].index];
      if (slot_state(*s) == SlotState::kClaimed) lapsed++;
      int64 lease = r.queue->expiry_ends_lease ? lease_until_expiry(r.lease_us, now, candidates[k].expires_at) : r.lease_us;
      claim_slot(*s, nonces[k], r.worker, now, lease, r.start_within_us, r.session_bound);
      shortest = Min(shortest, s->deadline - now);
      if (r.take) {
        s->state = static_cast<uint8>(SlotState::kSettling);
        set_slot_kind(*s, SettleKind::kAcked);
        set_slot_xid(*s, take_xid);
      }
    }
    c->result->lsn = map_log(c->segment.map, buf, fragments, fragment_count);
    END_CRIT_SECTION();
    for (int k = 0; k < kept; k++) {
      int i = candidates[k].index;
      Claimed* out = &c->result->items[c->result->count++];
      out->slot = slots[i];
      out->place = Place{range.block, static_cast<uint8>(range.first + i)};
      out->segment = c->segment_no;
      out->epoch = c->epoch;
      out->row = candidates[k].row;
      note_claim(c->key, range.block, out->place.index, out->slot.nonce, r.queue->id);
      if (r.session_bound) note_session_claim(RelationGetRelid(c->segment.heap), out->place, out->slot, r.queue->id);
      if (r.take) note_settled(c->key, range.block, out->place.index, 0, out->slot.deadline, false, r.queue->id);
    }
  }
  UnlockReleaseBuffer(buf);
  if (expired) c->now = now;
  if (kept == 0) return;
  want_sweep(c->key, now + shortest);
  baton::count(r.queue->id, Counter::kClaimed, static_cast<uint64>(kept));
  baton::count(r.queue->id, Counter::kExpiredLeases, static_cast<uint64>(lapsed));
}

void look_at_range(Claimer* c, const Range& range) {
  debug_here("claim-reserved");
  if (!copy_slots(c->segment.map, range.block, range.first, range.count, nullptr, c->copy)) {
    drop_range();
    return;
  }
  resolve_copy(c->segment.heap, c->copy);
  if (range.flags & kRangeVoid) {
    if (c->copy->count > 0) serve_void(c, range);
    drop_range();
    return;
  }
  Candidate candidates[kSlotsPerPage];
  int n = 0;
  for (int i = 0; i < c->copy->count; i++) {
    HeapTuple row = nullptr;
    TimestampTz expires_at = kNever;
    Choice choice = c->done ? Choice::kFull : choose(c, range, i, n, &row, &expires_at);
    if (choice == Choice::kFull) {
      put_back(c->key, slot_range(range.block, range.first + i, c->copy->count - i), 0);
      c->done = true;
      break;
    }
    if (choice == Choice::kTake) candidates[n++] = Candidate{i, row, expires_at};
    if (c->request->probe && n > 0) {
      // Found: it goes back untouched, with the rest of the range.
      put_back(c->key, slot_range(range.block, range.first + i, c->copy->count - i), 0);
      c->result->found = true;
      c->done = true;
      n = 0;
      break;
    }
  }
  debug_here("claim-looked");
  if (n > 0) fence_claims(c, range, candidates, n);
  drop_range();
}

BlockNumber next_page(Relation map, BlockNumber block) {
  Buffer buf = ReadBuffer(map, block);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  bool good = page_is_map_page(BufferGetPage(buf));
  BlockNumber next = good ? map_tail(BufferGetPage(buf))->next : InvalidBlockNumber;
  UnlockReleaseBuffer(buf);
  if (!good) raise_damaged_map(map, block);
  return next;
}

void claim_from_lane(Claimer* c, uint32 lane) {
  c->key = lane_key(c->segment.map, lane);
  c->hint = lane_hint(c->segment.map, lane);
  LaneView view = view_lane(c->segment.map, lane);
  c->epoch = view.epoch;
  bool swept = false;
  int stride = 1;
  int revisits = waiting_ranges(c->hint, c->key, c->now);
  // Messages that this claim passes over come back to the revisit list: they may use up half of what is left of its walk,
  // or a claim by class would never get beyond the first ones of another.
  int most_passed = c->passed_over + (kMaxPassedOver - c->passed_over) / 2;
  while (!c->done && c->result->count < c->request->max_items) {
    CHECK_FOR_INTERRUPTS();
    if (c->passed_over >= most_passed) revisits = 0;
    int want = c->request->classes || c->request->max_bytes > 0 ? kSlotsPerPage
                                                                : Min(kSlotsPerPage, (c->request->max_items - c->result->count) * stride);
    Range range;
    BlockNumber block;
    switch (reserve_range(c->hint, c->key, c->now, want, revisits <= 0, &range, &block)) {
      case ReserveResult::kLost:
        c->hint = lane_hint(c->segment.map, lane);
        continue;
      case ReserveResult::kNextPage: {
        BlockNumber next = next_page(c->segment.map, block);
        if (!BlockNumberIsValid(next)) return;
        advance_frontier(c->hint, c->key, block, next);
        continue;
      }
      case ReserveResult::kRange:
        // Below one, the range came from the frontier.
        if (revisits > 0) revisits--;
        hold_range(c->key, range);
        c->stale = 0;
        look_at_range(c, range);
        // Hints that have gone stale (published twice, settled since) are walked over in growing steps and are no reason
        // to come back empty while good ones wait behind them.
        if (c->stale > 0 && c->stale == c->copy->count) {
          stride = Min(stride * 2, kSlotsPerPage);
          revisits++;
        } else {
          stride = 1;
        }
        revisits += c->came_back;
        c->came_back = 0;
        continue;
      case ReserveResult::kNone:
        break;
    }
    if (swept) return;
    swept = true;
    bool overdue = c->now - view.swept_at > static_cast<int64>(sweep_interval_ms) * 1000;
    SweepResult r;
    sweep_lane(c->request->queue, c->segment, lane, overdue, &r);
    if (r.published == 0) return;
    revisits = waiting_ranges(c->hint, c->key, c->now);
  }
}

// Relation file number of a map, from the relation cache's source: says without any lock whether hints are this map's.
RelNumber map_number(Oid map) {
  HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(map));
  if (!HeapTupleIsValid(tuple)) return 0;
  RelNumber n = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relfilenode;
  ReleaseSysCache(tuple);
  return n;
}

// Could there be anything in this segment? Without opening it. *open_seq: its place in the ring's order, as far as known.
bool segment_has_work(const Queue* q, int i, TimestampTz now, uint64* open_seq) {
  *open_seq = 0;
  if (!OidIsValid(q->map[i])) return true;
  LaneKey key{MyDatabaseId, map_number(q->map[i]), kDefaultLane};
  LaneHint* h = find_lane_hint(key);
  LaneView view;
  if (!h || !view_lane_hint(h, key, &view)) return true;
  *open_seq = view.open_seq;
  if (view.map_lanes != 1) return view.map_lanes > 1;
  TimestampTz next = kNever;
  if (lane_has_work(h, key, now, &next)) return true;
  return now - view.swept_at > static_cast<int64>(sweep_interval_ms) * 1000;
}

int order_of_segments(const Queue* q, TimestampTz now, int* order) {
  uint64 seqs[kMaxSegments];
  int n = 0;
  for (int i = 0; i < q->segment_count; i++) {
    uint64 seq;
    if (!segment_has_work(q, i, now, &seq)) continue;
    int k = n++;
    while (k > 0 && seqs[k - 1] > seq) {
      seqs[k] = seqs[k - 1];
      order[k] = order[k - 1];
      k--;
    }
    seqs[k] = seq;
    order[k] = i;
  }
  return n;
}

void claim_from_segment(Claimer* c, int segment_no) {
  c->segment = open_segment(c->request->queue->heap[segment_no], RowExclusiveLock);
  c->segment_no = segment_no;
  pgstat_count_index_scan(c->segment.map);
  LaneView view = view_lane(c->segment.map, kDefaultLane);
  if (view.map_lanes <= 1 && BlockNumberIsValid(view.frontier_block)) {
    claim_from_lane(c, kDefaultLane);
  } else {
    auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
    int n = list_lanes(c->segment.map, lanes, kMaxLanes);
    for (int i = 0; i < n && !c->done && c->result->count < c->request->max_items; i++) claim_from_lane(c, lanes[i].lane);
    pfree(lanes);
  }
  // The lock stays: slots of this segment may be set aside below, and the segment must not be truncated meanwhile.
  close_segment(c->segment, NoLock);
}

struct AsideWork {
  Claimer* c;
  int from;
  int to;
};

void aside_body(void* argument) {
  auto* w = static_cast<AsideWork*>(argument);
  for (int i = w->from; i < w->to; i++) {
    const Aside& a = w->c->asides[i];
    Segment segment = open_segment(w->c->request->queue->heap[a.segment_no], RowExclusiveLock);
    set_aside(w->c->request->queue, segment, a.segment_no, a.slot, a.place, a.kind, a.cause);
    close_segment(segment, NoLock);
  }
}

// What cannot be set aside is nobody's here: the claim goes on, and the mover says in health what is wrong with it.
void set_asides(Claimer* c) {
  AsideWork all{c, 0, c->aside_count};
  offer_undone_after(clock_now() + kAsideAgain);
  bool done = in_subtransaction(aside_body, &all);
  for (int i = 0; i < c->aside_count && !done; i++) {
    AsideWork one{c, i, i + 1};
    (void)in_subtransaction(aside_body, &one);
  }
  offer_undone_after(0);
}

// The rows of taken messages, segment by segment: retained where the queue says so, and deleted.
void take_rows(Claimer* c) {
  const Queue* queue = c->request->queue;
  auto* slots = static_cast<Slot*>(palloc(sizeof(Slot) * static_cast<Size>(c->result->count)));
  for (int i = 0; i < c->result->count;) {
    int segment = c->result->items[i].segment;
    Relation heap = table_open(queue->heap[segment], NoLock);  // locked by the claim, to the end of the transaction
    CheckCmdReplicaIdentity(heap, CMD_DELETE);
    int n = 0;
    for (; i < c->result->count && c->result->items[i].segment == segment; i++) slots[n++] = c->result->items[i].slot;
    if (n == 1) blame_claim(slots[0].nonce);
    retain_rows(queue, heap, slots, n, c->now);
    for (int k = 0; k < n; k++) {
      blame_claim(slots[k].nonce);
      delete_row(heap, slots[k]);
    }
    blame_claim(0);
    table_close(heap, NoLock);
  }
  pfree(slots);
}

}  // namespace

void claim_messages(const ClaimRequest& request, ClaimResult* result) {
  AcceptInvalidationMessages();
  auto* c = static_cast<Claimer*>(palloc0(sizeof(Claimer)));
  c->request = &request;
  c->result = result;
  c->snapshot = GetActiveSnapshot();
  c->now = clock_now();
  c->copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  result->count = 0;
  result->found = false;
  result->lsn = InvalidXLogRecPtr;
  result->items = static_cast<Claimed*>(palloc(sizeof(Claimed) * static_cast<Size>(Max(request.max_items, 1))));
  int order[kMaxSegments];
  int n = order_of_segments(request.queue, c->now, order);
  begin_looking(request.queue->id);
  for (int i = 0; i < n && !c->done && result->count < request.max_items; i++) claim_from_segment(c, order[i]);
  end_looking(result->found);
  if (c->aside_count > 0) set_asides(c);
  // With the mover dead, work comes due all the same: for the next claim, since rows of one's own are not handed out.
  if (result->count < request.max_items && !result->found && mover_is_late(c->now)) (void)help_with_due(request.queue, kMaxSetAside);
  if (result->count < request.max_items && !result->found) help_with_long_claims(request.queue, c->now);
  if (request.take && result->count > 0) take_rows(c);
  pfree(c->copy);
  pfree(c);
}

bool something_to_claim(Queue* queue) {
  ClaimRequest r;
  memset(&r, 0, sizeof(r));
  r.queue = queue;
  r.max_items = 1;
  r.probe = true;
  ClaimResult result;
  claim_messages(r, &result);
  return result.found;
}

}  // namespace baton
