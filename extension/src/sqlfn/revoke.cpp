// revoke: takes a message away from whoever holds it. For a worker that is wedged, or that nobody can reach.
#include "../core/envelope.hpp"
#include "../leasemap/end_claim.hpp"
#include "../leasemap/find.hpp"
#include "../leasemap/resolve.hpp"
#include "../leasemap/xact.hpp"
#include "../pg/clock.hpp"
#include "../pg/debug_point.hpp"
#include "../pg/errors.hpp"
#include "../pg/shmem.hpp"
#include "arguments.hpp"
#include "audit.hpp"
#include "set_aside.hpp"

namespace baton {
namespace {

constexpr int kAttempts = 10;  // the claim may be moved between the look and the act

struct Revocation {
  Queue queue;
  int64 id;
  text* reason;
  EndTerms terms;
};

const char* details(const Revocation& r, const FoundMessage& m) {
  char worker[64];
  worker_name(m.slot.worker, worker, sizeof(worker));
  StringInfoData json;
  initStringInfo(&json);
  appendStringInfo(&json, "{\"id\": " INT64_FORMAT ", \"generation\": %u, \"failed\": %s, \"worker\": ", r.id, m.slot.generation,
                   r.terms.failed ? "true" : "false");
  escape_json(&json, worker);
  appendStringInfoChar(&json, '}');
  return json.data;
}

EndResult write_and_end(const Revocation& r, const FoundMessage& m) {
  write_audit({"revoke", &r.queue, 1, r.reason, details(r, m)});
  if (r.terms.failed) add_evidence(r.queue.id, m.slot, true, "revoke", r.reason, false, 0);
  debug_here("revoke-written");
  EndResult result = EndResult::kNotClaimed;
  Segment segment;
  if (open_segment_if_there(m.heap, RowExclusiveLock, &segment)) {
    Slot ended;
    if (m.place.block < RelationGetNumberOfBlocks(segment.map)) result = end_claim(segment, m.place, m.slot.nonce, r.terms, &ended);
    close_segment(segment, NoLock);
  }
  return result;
}

// What is written about it comes before the act, and stays only if that happens.
EndResult revoke_found(const Revocation& r, const FoundMessage& m) {
  MemoryContext context = CurrentMemoryContext;
  ResourceOwner owner = CurrentResourceOwner;
  volatile EndResult result = EndResult::kNotClaimed;
  BeginInternalSubTransaction(nullptr);
  MemoryContextSwitchTo(context);
  PG_TRY();
  {
    result = write_and_end(r, m);
  }
  PG_CATCH();
  {
    // Whoever catches the error outside takes the innermost subtransaction for his own.
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    ReThrowError(error);
  }
  PG_END_TRY();
  if (result == EndResult::kEnded)
    ReleaseCurrentSubTransaction();
  else
    RollbackAndReleaseCurrentSubTransaction();
  MemoryContextSwitchTo(context);
  CurrentResourceOwner = owner;
  return result;
}

Outcome revoke(const Revocation& r) {
  uint64 nonce = 0;
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    FoundMessage m;
    if (!find_message(&r.queue, r.id, &m)) return Outcome::kNotFound;
    // Whoever has claimed the message since is not meant.
    if (nonce != 0 && m.slot.nonce != nonce) break;
    nonce = m.slot.nonce;
    SlotPhase phase = slot_phase(m.slot, m.status, clock_now());
    if (phase == SlotPhase::kSettling || phase == SlotPhase::kAskRow) return m.status == XidStatus::kMine ? Outcome::kAlreadySettled : Outcome::kSettling;
    if (phase != SlotPhase::kHeld) return Outcome::kNotClaimed;
    EndResult result = revoke_found(r, m);
    if (result == EndResult::kSettling) return Outcome::kSettling;
    if (result != EndResult::kEnded) continue;
    ereport(LOG_SERVER_ONLY, (errmsg("claim %u of message " INT64_FORMAT " of queue \"%s\" was revoked by \"%s\"", m.slot.generation, r.id, r.queue.name,
                                     GetUserNameFromId(GetUserId(), false))));
    return Outcome::kRevoked;
  }
  return Outcome::kNotClaimed;
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_revoke) {
  using namespace baton;
  require_writable("revoke");
  Revocation r;
  memset(&r, 0, sizeof(r));
  r.queue = *find_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
  const Queue& q = r.queue;
  check_privilege(&q, ACL_DELETE);
  if (PG_ARGISNULL(1)) raise_bad_argument("id", "must not be null");
  r.id = PG_GETARG_INT64(1);
  bool failed = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
  int64 delay = PG_ARGISNULL(3) ? -1 : interval_argument("delay", PG_GETARG_INTERVAL_P(3), 0, q.max_delay);
  if (!PG_ARGISNULL(4)) {
    r.reason = PG_GETARG_TEXT_PP(4);
    check_text_length("reason", r.reason, kMaxReasonBytes);
  }
  r.terms = EndTerms{SettleKind::kRevoked, failed, delay, q.backoff, q.max_backoff, q.max_attempts, q.id};
  // Nobody may trust a revocation that a crash takes back.
  require_durability(Durability::kLocal);
  bool pushed = push_snapshot_if_none();
  Outcome outcome = revoke(r);
  if (pushed) PopActiveSnapshot();
  if (outcome == Outcome::kRevoked) baton::count(q.id, Counter::kReleased, 1);
  PG_RETURN_TEXT_P(cstring_to_text(outcome_entry(outcome).word));
}
