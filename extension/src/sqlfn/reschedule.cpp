// reschedule: changes when a message that nobody holds is due, in the caller's transaction, by moving it: to the front of its
// queue, or to where messages wait that are due at that time.
#include "../core/envelope.hpp"
#include "../leasemap/find.hpp"
#include "../leasemap/lapse.hpp"
#include "../leasemap/move.hpp"
#include "../leasemap/row.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/errors.hpp"
#include "../pg/guc.hpp"
#include "arguments.hpp"
#include "audit.hpp"

namespace baton {
namespace {

constexpr long kPollMs = 5;

[[noreturn]] void refuse(int sqlstate, const Queue& q, int64 id, const char* what, const char* detail, const char* hint) {
  ereport(ERROR, (errcode(sqlstate), errmsg("message " INT64_FORMAT " of queue \"%s\" %s", id, q.name, what), detail ? errdetail("%s", detail) : 0,
                  hint ? errhint("%s", hint) : 0));
  pg_unreachable();
}

[[noreturn]] void refuse_absent(const Queue& q, int64 id, bool settled) {
  refuse(ERRCODE_UNDEFINED_OBJECT, q, id, "does not exist", settled ? "It was settled, or set aside." : nullptr,
         "baton.explain_message says what became of it.");
}

// Raises for states that waiting does not end; false: look again in a moment.
bool can_move(const Queue& q, const FoundMessage& m, SlotPhase phase) {
  switch (phase) {
    case SlotPhase::kDue:
    case SlotPhase::kLater:
      return true;
    case SlotPhase::kLapsed:
      if (m.slot.failures + 1 < q.max_attempts) return true;
      refuse(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, q, m.slot.id, "has used up its attempts", "Its last lease has ended.", nullptr);
    case SlotPhase::kHeld:
      refuse(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, q, m.slot.id, "is claimed", nullptr,
             "Take it away from its worker with baton.revoke, which takes a delay.");
    case SlotPhase::kForeign:
      refuse(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, q, m.slot.id, "is not active", "It arrived by logical replication.", "See baton.activate.");
    case SlotPhase::kNothing:
      refuse_absent(q, m.slot.id, true);
    default:
      if (m.status == XidStatus::kMine)
        refuse(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, q, m.slot.id, "has been enqueued, moved or settled by this transaction", nullptr, nullptr);
      return false;
  }
}

// False: it is not as it was looked at any more.
bool move_found(Queue* q, const FoundMessage& m, SlotPhase phase, TimestampTz due, TimestampTz now) {
  Segment segment;
  if (!open_segment_if_there(m.heap, RowExclusiveLock, &segment)) return false;
  bool done = false;
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  if (m.place.block < RelationGetNumberOfBlocks(segment.map) && copy_slots(segment.map, m.place.block, m.place.index, 1, nullptr, copy) &&
      copy->count == 1) {
    resolve_copy(segment.heap, copy);
    bool same = memcmp(&copy->resolved[0], &m.slot, sizeof(Slot)) == 0;
    const bool which[] = {true};
    // The lease that is over is not taken along: its failure is counted first, as a claim would.
    if (same && phase == SlotPhase::kLapsed) same = end_lapsed(segment, m.place.block, copy, which, now) == 1;
    TimestampTz expires_at;
    if (same && row_expires_at(segment.heap, m.slot, &expires_at)) check_expiry(expires_at, due, now);
    debug_here("reschedule-looked");
    MoveItem item{copy->resolved[0], m.place, due};
    done = same && move_messages(q, segment, &item, 1, MoveTarget::kQueue) == 1;
  }
  pfree(copy);
  close_segment(segment, NoLock);
  return done;
}

// Settled, moved or locked by somebody else at this moment: that ends, or not soon enough.
void wait_a_moment(const Queue& q, int64 id, TimestampTz started) {
  if (GetCurrentTimestamp() - started >= static_cast<int64>(settle_timeout_ms) * 1000)
    refuse(ERRCODE_LOCK_NOT_AVAILABLE, q, id, "is in use", "Another transaction enqueues, moves, settles or locks it, and has not ended.", "Try again.");
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kPollMs, wait_event("BatonSettle"));
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
}

const char* details(int64 id, const Slot& slot, TimestampTz due, TimestampTz now) {
  const char* from = slot_state(slot) == SlotState::kReady && slot.deadline > now ? psprintf("\"%s\"", timestamptz_to_str(slot.deadline)) : "null";
  const char* to = due != 0 ? psprintf("\"%s\"", timestamptz_to_str(due)) : "null";
  return psprintf("{\"id\": " INT64_FORMAT ", \"from\": %s, \"to\": %s}", id, from, to);
}

void reschedule(const Queue& q, int64 id, TimestampTz due, TimestampTz now, const text* reason) {
  TimestampTz started = GetCurrentTimestamp();
  for (bool done = false; !done;) {
    // What is, not what was when the statement began: the message may have been moved since.
    PushActiveSnapshot(GetLatestSnapshot());
    FoundMessage m;
    if (!find_message(&q, id, &m)) refuse_absent(q, id, false);
    SlotPhase phase = slot_phase(m.slot, m.status, now);
    Queue* queue = can_move(q, m, phase) ? find_queue_by_id(q.id) : nullptr;
    done = queue && move_found(queue, m, phase, due, now);
    PopActiveSnapshot();
    if (done)
      write_audit({"reschedule", &q, 1, reason, details(id, m.slot, due, now)});
    else
      wait_a_moment(q, id, started);
  }
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_reschedule) {
  using namespace baton;
  require_writable("reschedule");
  Queue q = *find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  check_privilege(&q, ACL_DELETE);
  if (PG_ARGISNULL(1)) raise_bad_argument("id", "must not be null");
  if (PG_ARGISNULL(2) && PG_ARGISNULL(3))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("neither delay nor not_before is given"), errhint("delay => '0 s' means now.")));
  TimestampTz now = clock_now();
  TimestampTz not_before = PG_ARGISNULL(3) ? 0 : PG_GETARG_TIMESTAMPTZ(3);
  TimestampTz due = due_argument(PG_ARGISNULL(2) ? nullptr : PG_GETARG_INTERVAL_P(2), PG_ARGISNULL(3) ? nullptr : &not_before, now, q.max_delay);
  const text* reason = PG_ARGISNULL(4) ? nullptr : PG_GETARG_TEXT_PP(4);
  if (reason) check_text_length("reason", reason, kMaxReasonBytes);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  reschedule(q, PG_GETARG_INT64(1), due, now, reason);
  Datum values[2] = {CStringGetTextDatum(due != 0 ? "scheduled" : "ready"), TimestampTzGetDatum(due)};
  bool nulls[2] = {false, due == 0};
  tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  return (Datum)0;
}
