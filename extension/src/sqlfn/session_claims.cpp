// See session_claims.hpp. Only this backend touches the list. An entry is a guess: the claim may have been settled, by
// another session too, or its lease may be over. So nothing keeps the list in step with settlements; it is cleaned when it
// has doubled, and at exit every entry is checked by its nonce.
//
// At exit an ERROR becomes FATAL and ends the callback it came from, but not the exit: each segment has a callback of its
// own, registered by the one before it, so that one which fails does not keep the next from its turn. Interrupts are held
// back, so nothing here may wait for a lock that is held to the end of somebody's transaction.
#include "session_claims.hpp"

#include "../leasemap/end_claim.hpp"
#include "../leasemap/long_claims.hpp"
#include "../leasemap/resolve.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/guc.hpp"
#include "../pg/shmem.hpp"
#include "set_aside.hpp"

namespace baton {
namespace {

struct SessionClaim {
  Oid heap;
  Place place;
  int32 queue_id;
  uint32 generation;
  int64 id;
  uint64 nonce;
};

// What a disconnect means for a queue, as it was at the last claim: at exit no definition is read.
struct SessionQueue {
  int32 id;
  int64 backoff;
  int64 max_backoff;
  int max_attempts;
};

constexpr int kSmallest = 1024;
constexpr int kMaxEvidence = 1000;     // rows written at one exit
constexpr int kMaxFailedSegments = 8;  // errors nest: each one that ends a callback ends it inside the one before

SessionClaim* claims = nullptr;
int claim_count = 0;
int claim_capacity = 0;
SessionQueue* queues = nullptr;
int queue_count = 0;
int queue_capacity = 0;
bool exit_registered = false;
int next_at_exit = 0;
int begun_at_exit = 0;
int finished_at_exit = 0;
int evidence_rows = 0;

int by_place(const void* a, const void* b) {
  auto* x = static_cast<const SessionClaim*>(a);
  auto* y = static_cast<const SessionClaim*>(b);
  if (x->heap != y->heap) return x->heap < y->heap ? -1 : 1;
  if (x->place.block != y->place.block) return x->place.block < y->place.block ? -1 : 1;
  return static_cast<int>(x->place.index) - static_cast<int>(y->place.index);
}

int end_of_segment(int i) {
  Oid heap = claims[i].heap;
  while (i < claim_count && claims[i].heap == heap) i++;
  return i;
}

// False: it is locked, or gone, or has no map. Never waits.
bool open_at_once(Oid heap_oid, LOCKMODE lock, Segment* s) {
  if (!ConditionalLockRelationOid(heap_oid, lock)) return false;
  s->heap = try_relation_open(heap_oid, NoLock);
  Oid map_oid = s->heap ? find_map(s->heap) : InvalidOid;
  if (OidIsValid(map_oid) && ConditionalLockRelationOid(map_oid, lock)) {
    s->map = index_open(map_oid, NoLock);
    return true;
  }
  if (s->heap) relation_close(s->heap, NoLock);
  UnlockRelationOid(heap_oid, lock);
  return false;
}

// Where a claim is now that is not at its place any more: in a long segment, if anywhere.
bool open_long(const SessionClaim& c, LOCKMODE lock, Segment* segment, Place* place) {
  for (int n = 0; n < kLongTables; n++) {
    Oid oid = shared_table_oid(SharedKind::kLong, n);
    if (!OidIsValid(oid) || !open_at_once(oid, lock, segment)) continue;
    bool any = RelationGetNumberOfBlocks(segment->map) > kMetaBlock + 1;
    if (any && find_in_long(*segment, c.queue_id, c.id, c.generation, c.nonce, place) == LongFind::kFound) return true;
    close_segment(*segment, lock);
  }
  return false;
}

// What a slot says about a claim that was made there. nullptr: there is no such place any more.
enum class Whereabouts { kHere, kAway, kOver };
Whereabouts look_for(const Slot* s, const SessionClaim& c, TimestampTz now) {
  if (!s || s->id != c.id) return Whereabouts::kAway;  // the segment has been reclaimed since
  if (s->nonce != c.nonce) return Whereabouts::kOver;
  if (slot_state(*s) == SlotState::kGone) return slot_kind(*s) == SettleKind::kMoved ? Whereabouts::kAway : Whereabouts::kOver;
  bool live = slot_state(*s) == SlotState::kSettling || (slot_state(*s) == SlotState::kClaimed && now < s->deadline);
  return live ? Whereabouts::kHere : Whereabouts::kOver;
}

bool is_in_long(const SessionClaim& c) {
  Segment segment;
  Place place;
  if (!open_long(c, AccessShareLock, &segment, &place)) return false;
  close_segment(segment, AccessShareLock);
  return true;
}

// ---- cleaning

int clean_segment(int first, int last, int kept) {
  Segment segment;
  bool open = open_at_once(claims[first].heap, AccessShareLock, &segment);
  BlockNumber blocks = open ? RelationGetNumberOfBlocks(segment.map) : 0;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber copied = InvalidBlockNumber;
  TimestampTz now = clock_now();
  for (int i = first; i < last; i++) {
    SessionClaim c = claims[i];
    if (open) {
      if (c.place.block != copied) {
        copied = c.place.block;
        copy->count = 0;
        if (copied < blocks) (void)copy_slots(segment.map, copied, 0, kSlotsPerPage, nullptr, copy);
      }
      Whereabouts where = look_for(c.place.index < copy->count ? &copy->slots[c.place.index] : nullptr, c, now);
      if (where == Whereabouts::kOver || (where == Whereabouts::kAway && !is_in_long(c))) continue;
    }
    claims[kept++] = c;
  }
  pfree(copy);
  if (open) close_segment(segment, AccessShareLock);
  return kept;
}

void clean() {
  qsort(claims, static_cast<size_t>(claim_count), sizeof(SessionClaim), by_place);
  int kept = 0;
  for (int first = 0; first < claim_count;) {
    int last = end_of_segment(first);
    kept = clean_segment(first, last, kept);
    first = last;
  }
  claim_count = kept;
}

// ---- at exit

const SessionQueue* queue_of(int32 id) {
  for (int i = 0; i < queue_count; i++)
    if (queues[i].id == id) return &queues[i];
  return nullptr;
}

struct Ended {
  Slot slot;
  int32 queue_id;
};

// In place, or where it has been moved to.
EndResult end_one(const Segment& segment, const SessionClaim& c, const EndTerms& terms, PageCopy* copy, Slot* slot) {
  copy->count = 0;
  if (c.place.block < RelationGetNumberOfBlocks(segment.map)) (void)copy_slots(segment.map, c.place.block, c.place.index, 1, nullptr, copy);
  resolve_copy(segment.heap, copy);
  switch (look_for(copy->count == 1 ? &copy->resolved[0] : nullptr, c, clock_now())) {
    case Whereabouts::kHere:
      return end_claim(segment, c.place, c.nonce, terms, slot);
    case Whereabouts::kOver:
      return EndResult::kNotClaimed;
    default:
      break;
  }
  Segment other;
  Place place;
  if (!open_long(c, RowExclusiveLock, &other, &place)) return EndResult::kNotClaimed;
  EndResult result = end_claim(other, place, c.nonce, terms, slot);
  close_segment(other, RowExclusiveLock);
  return result;
}

int end_claims(int first, int last, Ended* ended) {
  Segment segment;
  if (!open_at_once(claims[first].heap, RowExclusiveLock, &segment)) return 0;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  int n = 0;
  for (int i = first; i < last; i++) {
    const SessionClaim& c = claims[i];
    const SessionQueue* q = queue_of(c.queue_id);
    if (!q) continue;
    EndTerms terms{SettleKind::kDisconnected, true, -1, q->backoff, q->max_backoff, q->max_attempts, q->id};
    Slot slot;
    if (end_one(segment, c, terms, copy, &slot) != EndResult::kEnded) continue;
    baton::count(c.queue_id, Counter::kReleased, 1);
    ended[n++] = Ended{slot, c.queue_id};
  }
  pfree(copy);
  close_segment(segment, RowExclusiveLock);
  return n;
}

// The claims have ended in place: what this fails at (a full disk, a lock) undoes nothing. It waits for no flush and no standby.
void write_evidence(const Ended* ended, int n) {
  n = Min(n, kMaxEvidence - evidence_rows);
  Oid table = get_relname_relid("evidence", baton_data_namespace());
  if (n <= 0 || !OidIsValid(table) || !ConditionalLockRelationOid(table, RowExclusiveLock)) return;
  synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
  for (int i = 0; i < n; i++) add_evidence(ended[i].queue_id, ended[i].slot, true, "disconnect", nullptr, false, 0);
  evidence_rows += n;
}

void end_claims_at_exit(int, Datum) {
  if (next_at_exit >= claim_count || begun_at_exit - finished_at_exit > kMaxFailedSegments || !enabled) return;
  before_shmem_exit(end_claims_at_exit, 0);
  AbortOutOfAnyTransaction();
  if (begun_at_exit == 0) qsort(claims, static_cast<size_t>(claim_count), sizeof(SessionClaim), by_place);
  int first = next_at_exit;
  int last = end_of_segment(first);
  next_at_exit = last;
  begun_at_exit++;
  StartTransactionCommand();
  PushActiveSnapshot(GetTransactionSnapshot());
  auto* ended = static_cast<Ended*>(MemoryContextAlloc(TopMemoryContext, sizeof(Ended) * static_cast<Size>(last - first)));
  debug_here("exit-claims");
  int n = end_claims(first, last, ended);
  debug_here("exit-evidence");
  if (n > 0) write_evidence(ended, n);
  PopActiveSnapshot();
  CommitTransactionCommand();
  finished_at_exit++;
}

// ---- noting

void note_queue(const Queue& q) {
  int i = 0;
  while (i < queue_count && queues[i].id != q.id) i++;
  if (i == queue_capacity) {
    int wanted = Max(16, queue_capacity * 2);
    Size size = sizeof(SessionQueue) * static_cast<Size>(wanted);
    queues = static_cast<SessionQueue*>(queues ? repalloc(queues, size) : MemoryContextAlloc(TopMemoryContext, size));
    queue_capacity = wanted;
  }
  queues[i] = SessionQueue{q.id, q.backoff, q.max_backoff, q.max_attempts};
  if (i == queue_count) queue_count++;
}

}  // namespace

void reserve_session_claims(const Queue& queue, int n) {
  if (!exit_registered) {
    before_shmem_exit(end_claims_at_exit, 0);
    exit_registered = true;
  }
  note_queue(queue);
  if (claim_count + n <= claim_capacity) return;
  if (claim_count >= kSmallest) clean();
  if (claim_count * 2 + n <= claim_capacity) return;
  int wanted = Max(claim_count * 2 + n, kSmallest * 2);
  Size size = mul_size(sizeof(SessionClaim), static_cast<Size>(wanted));
  claims = static_cast<SessionClaim*>(claims ? repalloc_huge(claims, size) : MemoryContextAllocHuge(TopMemoryContext, size));
  claim_capacity = wanted;
}

void note_session_claim(Oid heap, const Place& place, const Slot& slot, int32 queue_id) {
  claims[claim_count++] = SessionClaim{heap, place, queue_id, slot.generation, slot.id, slot.nonce};
}

}  // namespace baton
