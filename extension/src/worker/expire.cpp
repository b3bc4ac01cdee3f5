// Messages that expire (expires_at). Claims never hand out one whose time is over; here they are settled when nobody claims:
// dropped, or kept in quarantine, as the queue says. A message is settled under the fence like any other (set_aside): the
// slot must still be as it was looked at, a live claim and a settlement in progress are left alone and looked at again.
//
// leasemap/expiry.hpp knows where and when to look. What was being settled when something failed or died is looked at anew.
#include "expire.hpp"

#include "../core/expiry.hpp"
#include "../leasemap/row_look.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/guc.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "../sqlfn/settle.hpp"

namespace baton {
namespace {

constexpr int64 kRoundBudget = 50 * 1000;      // then the mover's other steps have their turn
constexpr int64 kStepBudget = 25 * 1000;       // of one transaction
constexpr int kMostSettled = 500;              // in one transaction
constexpr int kMostPages = 128;
constexpr int64 kLockedRetry = USECS_PER_SEC;  // a row that plain SQL has locked
constexpr int64 kFailedRetry = 60 * USECS_PER_SEC;
constexpr int64 kMapRetry = 5 * USECS_PER_SEC;
constexpr int kFailuresAtOnce = 3;

// Opens the segment whose map has this file number. False: it was truncated, rebuilt or dropped.
bool open_map_of(const Queue& queue, RelNumber rel, Segment* s) {
  for (int i = 0; i < queue.segment_count; i++) {
    if (!open_segment_if_there(queue.heap[i], RowExclusiveLock, s)) continue;
    if (rel_number(s->map) == rel) return true;
    close_segment(*s, RowExclusiveLock);
  }
  return false;
}

// ---- reading

struct LookWork {
  ExpiryBook* book;
  ExpiryLook* look;
  bool gone;
  bool done;
};

// A truncated segment has a new map; what is known of the old one is no use to anybody.
void forget_old_maps(ExpiryBook* book, const Queue& queue) {
  ExpiryMap** maps;
  int n = list_expiry_maps(book, &maps);
  for (int k = 0; k < n; k++) {
    RelNumber rel = maps[k]->rel;
    Segment s;
    if (maps[k]->queue_id != queue.id) continue;
    if (open_map_of(queue, rel, &s))
      close_segment(s, RowExclusiveLock);
    else
      forget_expiry_map(book, rel);
  }
  pfree(maps);
}

void look_body(void* argument) {
  auto* w = static_cast<LookWork*>(argument);
  Queue* found = find_queue_by_id(w->look->queue_id);
  Segment segment;
  w->gone = true;
  if (!found) return;
  Queue queue = *found;
  if (!open_map_of(queue, w->look->rel, &segment)) return;
  w->gone = false;
  ExpiryMap* map = find_expiry_map(w->book, w->look->rel);
  if (!map) {
    forget_old_maps(w->book, queue);
    map = make_expiry_map(w->book, w->look->rel, queue.id);
  }
  w->done = look_for_expiry(map, segment, w->look, kStepBudget);
  close_segment(segment, NoLock);
}

// ---- settling

struct SettleWork {
  ExpiryMap* map;
  bool gone;
  bool not_now;
  int settled;
  int count;
  ExpiryPage* pages[kMostPages];   // taken out of the heap
  TimestampTz again[kMostPages];   // when to look at them next, if this is committed
  ExpiryPage* page;                // of the message that is being settled; nullptr: none
  int index;
};

// Returns when to look at the page again.
TimestampTz settle_page(SettleWork* w, const Queue& queue, const Segment& segment, ExpiryPage* page, bool knows, PageCopy* copy) {
  if (!copy_slots(segment.map, page->block, 0, kSlotsPerPage, nullptr, copy)) return kNever;
  resolve_copy(segment.heap, copy);
  int64 recheck = static_cast<int64>(sweep_interval_ms) * 1000;
  TimestampTz now = clock_now();
  TimestampTz next = kNever;
  for (int i = 0; i < copy->count; i++) {
    const Slot& s = copy->resolved[i];
    if (!slot_is_unsettled(s)) continue;
    TimestampTz expires_at = expiry_of(segment, w->map, page, s, i, knows);
    if (expires_at == kNever) continue;
    TimestampTz again = now;
    ExpiryStep step = expiry_step(s, copy->status[i], expires_at, now, recheck, &again);
    if (step == ExpiryStep::kForget) continue;
    if (step == ExpiryStep::kExpire && w->settled < kMostSettled) {
      HeapTuple row = nullptr;
      RowLook look = look_at_row(segment.heap, s, GetActiveSnapshot(), &row);
      if (look == RowLook::kMissing) {
        // Deleted by plain SQL: no message any more. A claim or VACUUM settles the slot.
        page->times[i] = kNever;
        continue;
      }
      if (look == RowLook::kFree) {
        heap_freetuple(row);
        debug_here("expire-looked");
        w->page = page;
        w->index = i;
        bool done = set_aside(&queue, segment, 0, s, Place{page->block, static_cast<uint8>(i)}, SettleKind::kExpired, "expired");
        w->page = nullptr;
        if (done) {
          w->settled++;
          continue;
        }
      }
      again = now + kLockedRetry;
    }
    next = Min(next, again);
  }
  return next;
}

void settle_body(void* argument) {
  auto* w = static_cast<SettleWork*>(argument);
  Queue* found = find_queue_by_id(w->map->queue_id);
  w->gone = found == nullptr;
  if (w->gone) return;
  // A copy that is not meant to work decides nothing about its messages.
  w->not_now = !found->at_home || !claims_enabled;
  if (w->not_now) return;
  Queue queue = *found;
  Segment segment;
  w->gone = !open_map_of(queue, w->map->rel, &segment);
  if (w->gone) return;
  TimestampTz start = GetCurrentTimestamp();
  bool knows = map_knows_expiry(segment.map);
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  while (w->count < kMostPages && w->settled < kMostSettled && GetCurrentTimestamp() - start < kStepBudget) {
    CHECK_FOR_INTERRUPTS();
    ExpiryPage* page = pop_expiry_page(w->map, clock_now());
    if (!page) break;
    w->pages[w->count] = page;
    w->again[w->count++] = page->at;
    w->again[w->count - 1] = settle_page(w, queue, segment, page, knows, copy);
  }
  pfree(copy);
  if (w->settled > 0) debug_here("expire-settled");
  close_segment(segment, NoLock);
}

// One transaction. False: nothing more can be done on this map for the moment.
bool settle_some(StepRunner run, ExpiryBook* book, ExpiryMap* map) {
  SettleWork w;
  memset(&w, 0, sizeof(w));
  w.map = map;
  next_step_is_of(map->queue_id);
  bool committed = run(Step::kExpire, settle_body, &w);
  TimestampTz now = clock_now();
  // A message that cannot be settled must not keep the others from it.
  if (!committed && w.page) w.page->times[w.index] = now + kFailedRetry;
  for (int i = 0; i < w.count; i++) give_back_expiry_page(map, w.pages[i], committed ? w.again[i] : now);
  if (w.gone) {
    forget_expiry_map(book, map->rel);
    return false;
  }
  if (committed && !w.not_now) {
    map->failures = 0;
    return true;
  }
  // If it is not this one message, it is all of them.
  if (w.page && ++map->failures <= kFailuresAtOnce) return true;
  map->retry_at = now + kMapRetry;
  return false;
}

// ---- quarantined messages

constexpr int kMostQuarantined = 1000;  // in one transaction

// A queue that keeps what has expired keeps it in quarantine as well, and one that is held loses nothing.
void quarantined_body(void* argument) {
  auto* gone = static_cast<int64*>(argument);
  *gone = 0;
  Oid table = get_relname_relid("quarantined", baton_data_namespace());
  // SQL of before 0.2.0 has no such column.
  if (!claims_enabled || get_attnum(table, "expires_at") == InvalidAttrNumber) return;
  if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  Oid types[] = {TIMESTAMPTZOID, INT4OID};
  Datum values[] = {TimestampTzGetDatum(clock_now()), Int32GetDatum(kMostQuarantined)};
  int rc = SPI_execute_with_args(
      "WITH gone AS MATERIALIZED ("
      " SELECT x.ctid FROM baton_internal.queue q CROSS JOIN LATERAL ("
      "  SELECT d.ctid FROM baton_data.quarantined d WHERE d.queue_id OPERATOR(pg_catalog.=) q.id"
      "  AND d.expires_at OPERATOR(pg_catalog.<=) $1 LIMIT $2 FOR UPDATE SKIP LOCKED) x"
      " WHERE q.expired OPERATOR(pg_catalog.=) 'drop' AND q.held IS NULL AND baton_internal.at_home(q.home_system, q.home_database) LIMIT $2)"
      " DELETE FROM baton_data.quarantined d WHERE d.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT g.ctid FROM gone g)) RETURNING d.queue_id",
      2, types, values, nullptr, false, 0);
  if (rc != SPI_OK_DELETE_RETURNING) elog(ERROR, "removing expired messages from quarantine: %s", SPI_result_code_string(rc));
  *gone = static_cast<int64>(SPI_processed);
  for (uint64 i = 0; i < SPI_processed; i++) {
    bool isnull;
    baton::count(DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)), Counter::kExpired, 1);
  }
  SPI_finish();
}

}  // namespace

void expire_quarantined(StepRunner run) {
  int64 gone = 0;
  while (run(Step::kQuarantined, quarantined_body, &gone) && gone == kMostQuarantined) CHECK_FOR_INTERRUPTS();
}

bool expire_round(StepRunner run, ExpiryBook* book) {
  TimestampTz start = GetCurrentTimestamp();
  auto in_time = [&]() { return GetCurrentTimestamp() - start < kRoundBudget; };
  ExpiryLook** looks;
  int n = list_expiry_looks(book, &looks);
  bool more = false;
  for (int i = 0; i < n; i++) {
    LookWork w{book, looks[i], false, false};
    if (looks[i]->retry_at > clock_now()) continue;
    while (!w.done && !w.gone && in_time()) {
      next_step_is_of(looks[i]->queue_id);
      if (run(Step::kExpire, look_body, &w)) continue;
      looks[i]->retry_at = clock_now() + kMapRetry;
      break;
    }
    if (w.gone) {
      // The looks after it may be of the same map.
      forget_expiry_map(book, looks[i]->rel);
      more = true;
      break;
    }
    if (w.done) drop_expiry_look(book, looks[i]);
    more |= !in_time();
  }
  pfree(looks);
  // Each map has its turn before any has a second one.
  for (bool any = true; any && in_time();) {
    any = false;
    ExpiryMap** maps;
    n = list_expiry_maps(book, &maps);
    for (int i = 0; i < n && in_time(); i++) {
      TimestampTz now = clock_now();
      if (maps[i]->retry_at <= now && expiry_is_due(maps[i], now) && settle_some(run, book, maps[i])) any = true;
    }
    pfree(maps);
    more |= any && !in_time();
  }
  return more;
}

void forget_expiry_of_dropped(ExpiryBook* book, const int32* ids, int count) {
  ExpiryMap** maps;
  int n = list_expiry_maps(book, &maps);
  for (int i = 0; i < n; i++) {
    int low = 0;
    int high = count;
    while (low < high) {
      int middle = (low + high) / 2;
      if (ids[middle] < maps[i]->queue_id)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == count || ids[low] != maps[i]->queue_id) forget_expiry_map(book, maps[i]->rel);
  }
  pfree(maps);
}

namespace {

struct QueueLook {
  ExpiryBook* book;
  int32 queue_id;
};

void look_at_queue_body(void* argument) {
  auto* w = static_cast<QueueLook*>(argument);
  Queue* found = find_queue_by_id(w->queue_id);
  if (!found) return;
  Queue queue = *found;
  for (int i = 0; i < queue.segment_count; i++) {
    Segment segment = open_segment(queue.heap[i], RowExclusiveLock);
    RelNumber rel = rel_number(segment.map);
    auto* lanes = static_cast<LaneDirectoryEntry*>(palloc(sizeof(LaneDirectoryEntry) * kMaxLanes));
    int n = list_lanes(segment.map, lanes, kMaxLanes);
    for (int l = 0; l < n; l++)
      ask_for_expiry_look(w->book, rel, lanes[l].lane, queue.id, view_lane(segment.map, lanes[l].lane).low_block);
    pfree(lanes);
    close_segment(segment, RowExclusiveLock);
  }
}

}  // namespace

void expire_one(StepRunner run, int32 queue_id) {
  // Steps end transactions: what is kept between them lives in the round's memory.
  ExpiryBook* book = make_expiry_book(round_context());
  QueueLook w{book, queue_id};
  MemoryContext caller = MemoryContextSwitchTo(round_context());
  if (run(Step::kExpire, look_at_queue_body, &w))
    while (expire_round(run, book)) CHECK_FOR_INTERRUPTS();
  MemoryContextSwitchTo(caller);
  drop_expiry_book(book);
}

}  // namespace baton
