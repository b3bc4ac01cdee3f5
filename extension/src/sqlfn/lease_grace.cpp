// lease_grace: all live claims of a queue get that much longer, after a network was cut or a dependency stood still, so that
// work which is under way need not be done twice. Acts at once, page by page; a claim whose lease is over already stays over.
#include "../core/envelope.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/row.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"
#include "audit.hpp"

namespace baton {
namespace {

struct Grace {
  Queue queue;
  int64 us;
  int64 extended;
  int64 capped;  // of those: not by all of it
  XLogRecPtr lsn;
};

// Of the claims on a copied page that are under a live lease of this queue: when they must end at the latest. Rows are not
// read under the page's lock.
void latest_ends(const Grace& g, const Segment& segment, const PageCopy& copy, int32 shared_queue, bool* live, TimestampTz* latest) {
  TimestampTz now = clock_now();
  for (int i = 0; i < copy.count; i++) {
    const Slot& s = copy.resolved[i];
    live[i] = slot_phase(s, copy.status[i], now) == SlotPhase::kHeld && (shared_queue == 0 || static_cast<int32>(s.key_hash) == shared_queue);
    if (!live[i]) continue;
    latest[i] = slot_claimed_at(s) + g.queue.max_lifetime;
    TimestampTz expires_at;
    if (g.queue.expiry_ends_lease && slot_expires(s) && row_expires_at(segment.heap, s, &expires_at)) latest[i] = Min(latest[i], expires_at);
  }
}

// True: a live claim has changed since the page was looked at.
bool extend_page(Grace* g, const Segment& segment, BlockNumber block, int32 shared_queue, PageCopy* copy, bool* done) {
  if (!copy_slots(segment.map, block, 0, kSlotsPerPage, nullptr, copy)) return false;
  bool any = false;
  for (int i = 0; i < copy->count; i++) any |= slot_state(copy->slots[i]) == SlotState::kClaimed || slot_state(copy->slots[i]) == SlotState::kSettling;
  if (!any) return false;
  resolve_copy(segment.heap, copy);
  bool live[kSlotsPerPage];
  TimestampTz latest[kSlotsPerPage];
  latest_ends(*g, segment, *copy, shared_queue, live, latest);
  Fragment fragments[kSlotsPerPage];
  Slot after[kSlotsPerPage];
  int changed[kSlotsPerPage];
  int n = 0;
  bool again = false;
  Buffer buf = ReadBuffer(segment.map, block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Slot* slots = map_slots(BufferGetPage(buf));
  TimestampTz now = clock_now();
  for (int i = 0; i < copy->count; i++) {
    if (!live[i] || done[i]) continue;
    if (memcmp(&slots[i], &copy->slots[i], sizeof(Slot)) != 0) {
      again = true;
      continue;
    }
    done[i] = true;
    Slot s = copy->resolved[i];
    if (now >= s.deadline) continue;
    TimestampTz wanted = s.deadline + g->us;
    int64 before = s.deadline;
    lengthen_slot(s, Min(wanted, latest[i]), slot_claimed_at(s));
    if (s.deadline < wanted) g->capped++;
    if (s.deadline == before) continue;
    g->extended++;
    after[n] = s;
    changed[n] = i;
    fragments[n++] = Fragment{slot_offset(i), sizeof(Slot)};
  }
  if (n > 0) {
    map_log_begin(segment.map);
    START_CRIT_SECTION();
    for (int k = 0; k < n; k++) slots[changed[k]] = after[k];
    g->lsn = map_log(segment.map, buf, fragments, n);
    END_CRIT_SECTION();
  }
  UnlockReleaseBuffer(buf);
  return again;
}

void extend_segment(Grace* g, Oid heap, int32 shared_queue) {
  Segment segment;
  if (!open_segment_if_there(heap, RowExclusiveLock, &segment)) return;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
  for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
    bool done[kSlotsPerPage] = {false};  // each claim is given the time once
    do {
      CHECK_FOR_INTERRUPTS();
    } while (extend_page(g, segment, b, shared_queue, copy, done));
  }
  pfree(copy);
  close_segment(segment, NoLock);
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_lease_grace) {
  using namespace baton;
  require_writable("lease_grace");
  text* name = PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0);
  const Queue* q = find_queue(name);
  if (!object_owner_is_me(RelationRelationId, q->view))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to lengthen its leases", q->name)));
  // Claims that are being moved are waited for: a moment (leasemap/survivors.cpp).
  LockRelationOid(q->view, ShareUpdateExclusiveLock);
  Grace g;
  memset(&g, 0, sizeof(g));
  g.queue = *find_queue(name);
  if (PG_ARGISNULL(1)) raise_bad_argument("grace", "must not be null");
  g.us = interval_argument("grace", PG_GETARG_INTERVAL_P(1), 1, g.queue.max_lifetime);
  const text* reason = PG_ARGISNULL(2) ? nullptr : PG_GETARG_TEXT_PP(2);
  if (reason) check_text_length("reason", reason, kMaxReasonBytes);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  require_durability(Durability::kLocal);
  bool pushed = push_snapshot_if_none();
  for (int n = 0; n < g.queue.segment_count; n++) extend_segment(&g, g.queue.heap[n], 0);
  for (int n = 0; n < kLongTables; n++) {
    Oid table = shared_table_oid(SharedKind::kLong, n);
    if (OidIsValid(table)) extend_segment(&g, table, g.queue.id);
  }
  if (pushed) PopActiveSnapshot();
  // Nobody may trust a longer deadline that a crash could take back.
  if (g.lsn != InvalidXLogRecPtr) XLogFlush(g.lsn);
  ereport(LOG_SERVER_ONLY, (errmsg("leases of queue \"%s\" were lengthened by %.1f s by \"%s\": " INT64_FORMAT " claims", g.queue.name,
                                   static_cast<double>(g.us) / 1e6, GetUserNameFromId(GetUserId(), false), g.extended)));
  write_audit({"lease_grace", &g.queue, g.extended, reason, psprintf("{\"grace_s\": %.3f, \"capped\": " INT64_FORMAT "}", static_cast<double>(g.us) / 1e6, g.capped)});
  Datum values[2] = {Int64GetDatum(g.extended), Int64GetDatum(g.capped)};
  bool nulls[2] = {false, false};
  tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  return (Datum)0;
}
