// fence: ends every claim of a queue at once. Tokens that other sessions are given while its transaction is open carry
// the old incarnation and are refused, so it belongs in a transaction of its own.
// activate: makes messages that logical replication brought ready.
#include "../core/wheel.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "as_owner.hpp"
#include "audit.hpp"
#include "queue_notes.hpp"

namespace baton {
namespace {

enum class Pass { kFence, kActivate };

// In shared tables the key hash is the queue's number; shared_queue 0: the map is of one queue.
bool matches(const Slot& s, Pass pass, int32 shared_queue) {
  if (shared_queue != 0 && static_cast<int32>(s.key_hash) != shared_queue) return false;
  return pass == Pass::kFence ? slot_state(s) == SlotState::kClaimed : slot_is_foreign(s) && slot_is_unsettled(s);
}

// One page. A settlement in progress is neither reset nor worked around; if it rolls back, the raised incarnation has
// fenced its token all the same.
int change_page(const Segment& segment, BlockNumber block, Pass pass, PageCopy* copy, const Queue* q, int32 shared_queue) {
  int32 queue_id = q->id;
  int most_failures = q->max_attempts;
  if (!copy_slots(segment.map, block, 0, kSlotsPerPage, nullptr, copy)) return 0;
  resolve_copy(segment.heap, copy);
  bool any = false;
  for (int i = 0; i < copy->count; i++) any |= matches(copy->resolved[i], pass, shared_queue) || matches(copy->slots[i], pass, shared_queue);
  // Even where there is nothing to change the lock is taken once: a verb that has read the old incarnation is past it.
  Buffer buf = ReadBuffer(segment.map, block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Page page = BufferGetPage(buf);
  Slot* slots = map_slots(page);
  int used = map_slot_count(page);
  TimestampTz now = clock_now();
  int changed[kSlotsPerPage];
  Fragment fragments[kSlotsPerPage];
  int n = 0;
  for (int i = 0; i < used; i++) {
    bool same = i < copy->count && memcmp(&slots[i], &copy->slots[i], sizeof(Slot)) == 0;
    // A slot that has changed since is judged as it is now; open transactions in it are left alone.
    if (!same) {
      if (i >= copy->count) continue;
      copy->resolved[i] = slots[i];
    }
    if (!matches(copy->resolved[i], pass, shared_queue)) continue;
    // The last failure belongs into the transaction that sets the message aside.
    if (pass == Pass::kFence && copy->resolved[i].deadline <= now && copy->resolved[i].failures + 1 >= most_failures) continue;
    changed[n] = i;
    fragments[n++] = Fragment{slot_offset(i), sizeof(Slot)};
  }
  if (n > 0) {
    map_log_begin(segment.map);
    START_CRIT_SECTION();
    for (int k = 0; k < n; k++) {
      Slot* s = &slots[changed[k]];
      *s = copy->resolved[changed[k]];
      // A lease that was over already counts as it would have without us.
      if (pass == Pass::kFence)
        ready_slot(*s, SettleKind::kFenced, 0, s->deadline <= now);
      else
        s->kind = static_cast<uint8>(s->kind & ~kForeignFlag);
    }
    map_log(segment.map, buf, fragments, n);
    END_CRIT_SECTION();
  }
  LaneKey key = lane_key(segment.map, map_tail(page)->lane);
  UnlockReleaseBuffer(buf);
  // Their expiry was not looked at while they were foreign.
  if (n > 0 && pass == Pass::kActivate) want_expiry_look(lane_hint(segment.map, key.lane), key);
  for (int k = 0; k < n; k++) publish_by_key(key, Range{block, static_cast<uint8>(changed[k]), 1, 0, 0}, 0);
  if (n > 0) wake_waiters(MyDatabaseId, queue_id, static_cast<uint64>(n));
  return n;
}

int64 change_shared(const Queue* q, Pass pass, PageCopy* copy) {
  int64 n = 0;
  const SharedKind kinds[] = {SharedKind::kLater, SharedKind::kLong};
  for (SharedKind kind : kinds) {
    // Nobody holds a claim on what is in a bucket.
    if (pass == Pass::kFence && kind == SharedKind::kLater) continue;
    for (int i = 0; i < (kind == SharedKind::kLater ? kWheelTables : kLongTables); i++) {
      Oid table = shared_table_oid(kind, i);
      if (!OidIsValid(table)) continue;
      Segment segment = open_segment(table, RowExclusiveLock);
      BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
      for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
        CHECK_FOR_INTERRUPTS();
        n += change_page(segment, b, pass, copy, q, q->id);
      }
      close_segment(segment, NoLock);
    }
  }
  if (pass == Pass::kActivate && n > 0) due_unknown();
  // The mover brings what was claimed there back to the queue.
  if (pass == Pass::kFence && n > 0) long_noted(clock_now());
  return n;
}

int64 change_queue(const Queue* q, Pass pass) {
  int64 n = 0;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  for (int i = 0; i < q->segment_count; i++) {
    Segment segment = open_segment(q->heap[i], RowExclusiveLock);
    BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
    for (BlockNumber b = kMetaBlock + 1; b < blocks; b++) {
      CHECK_FOR_INTERRUPTS();
      n += change_page(segment, b, pass, copy, q, 0);
    }
    close_segment(segment, NoLock);
  }
  n += change_shared(q, pass, copy);
  pfree(copy);
  return n;
}

Queue* owned_queue(FunctionCallInfo fcinfo, const char* verb) {
  require_writable(verb);
  Queue* q = find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  if (!object_owner_is_me(RelationRelationId, q->view))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to %s it", q->name, verb)));
  return q;
}

// Replication brings messages and not the sequence their ids are from: what is enqueued here goes on above them, and above
// those that have been settled since they arrived, which the slots still know.
void pass_ids(const Queue* q) {
  Elevated e = become_extension_owner();
  LockRelationOid(q->id_sequence, ShareRowExclusiveLock);
  StringInfoData ids;
  initStringInfo(&ids);
  for (int i = 0; i < q->segment_count; i++)
    appendStringInfo(&ids, "%sSELECT pg_catalog.max(id) AS id FROM baton_internal.map_slots('baton_data.q%d_%d'::pg_catalog.regclass)",
                     i == 0 ? "" : " UNION ALL ", q->id, i);
  // What the queue has outside of its segments: scheduled, claimed for long, quarantined.
  const char* shared_tables[] = {"baton_internal.later_message", "baton_data.long_0", "baton_data.long_1", "baton_data.quarantined"};
  for (const char* table : shared_tables)
    if (has_later_options()) appendStringInfo(&ids, " UNION ALL SELECT pg_catalog.max(id) FROM %s WHERE queue_id = %d", table, q->id);
  run(psprintf("SELECT pg_catalog.setval('baton_data.q%d_id', m.id) FROM baton_data.q%d_id s,"
               " (SELECT pg_catalog.max(id) AS id FROM (%s) n) m WHERE m.id > s.last_value",
               q->id, q->id, ids.data));
  become_caller(e);
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_fence) {
  baton::Queue* q = baton::owned_queue(fcinfo, "fence");
  // Claims that are being moved are waited for: a moment (leasemap/survivors.cpp).
  LockRelationOid(q->view, ShareUpdateExclusiveLock);
  q = baton::owned_queue(fcinfo, "fence");
  baton::Queue copy = *q;
  // A kill switch that a crash could undo is none: on disk at commit, whatever the session asks for.
  baton::require_durability(baton::Durability::kLocal);
  baton::Elevated e = baton::become_extension_owner();
  baton::run(psprintf("UPDATE baton_internal.queue SET incarnation = CASE WHEN incarnation = 2147483647 THEN 1 ELSE incarnation + 1 END WHERE id = %d",
                      copy.id));
  baton::become_caller(e);
  baton::forget_queue(copy.view);
  baton::note_fenced(copy.id, copy.incarnation);
  int64 ended = baton::change_queue(&copy, baton::Pass::kFence);
  ereport(LOG_SERVER_ONLY, (errmsg("queue \"%s\" was fenced by \"%s\": " INT64_FORMAT " claims", copy.name, GetUserNameFromId(GetUserId(), false), ended)));
  baton::write_audit({"fence", &copy, ended, nullptr, nullptr});
  PG_RETURN_INT64(ended);
}

BATON_SQL_FUNCTION(baton_activate) {
  baton::Queue* q = baton::owned_queue(fcinfo, "activate");
  baton::Queue copy = *q;
  baton::pass_ids(&copy);
  PG_RETURN_INT64(baton::change_queue(&copy, baton::Pass::kActivate));
}
