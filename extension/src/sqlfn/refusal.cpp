// Raising what the fence refused: which token, what happened, what to do. Never a payload.
#include "../core/verdict.hpp"
#include "../pg/shmem.hpp"
#include "settle_tokens.hpp"

namespace baton {
namespace {

const char* settled_how(const Slot& s) {
  switch (slot_kind(s)) {
    case SettleKind::kAcked:
      return "acknowledged";
    case SettleKind::kReleased:
    case SettleKind::kReturned:
      return "released";
    case SettleKind::kQuarantined:
      return "quarantined";
    case SettleKind::kPurged:
      return "purged";
    case SettleKind::kExpired:
      return "removed, because it had expired";
    case SettleKind::kHandedBack:
      return "handed back";
    case SettleKind::kMoved:
      return "moved";
    default:
      return "settled";
  }
}

void describe(StringInfo out, const Settlement& s) {
  switch (s.outcome) {
    case Outcome::kStaleGeneration: {
      char worker[64];
      worker_name(s.slot.worker, worker, sizeof(worker));
      appendStringInfo(out, "the token is of generation %u; ", s.token.generation);
      if (slot_state(s.slot) == SlotState::kClaimed && s.slot.generation > s.token.generation)
        appendStringInfo(out, "generation %u is held by %s", s.slot.generation, worker);
      else
        appendStringInfo(out, "the message is at generation %u now", s.slot.generation);
      break;
    }
    case Outcome::kLeaseExpired:
      if (slot_state(s.slot) == SlotState::kClaimed)
        appendStringInfo(out, "the lease ended %.1f s ago", static_cast<double>(s.now - s.slot.deadline) / 1e6);
      else if (slot_kind(s.slot) == SettleKind::kDisconnected)
        appendStringInfoString(out, "the session that the claim was bound to has ended");
      else if (slot_kind(s.slot) == SettleKind::kNone)
        appendStringInfoString(out, "the claim is over, how is not known any more");
      else
        appendStringInfoString(out, "the transaction that claimed the message was rolled back");
      break;
    case Outcome::kAlreadySettled:
      appendStringInfo(out, "the message was %s", settled_how(s.slot));
      break;
    case Outcome::kInvalidToken:
      appendStringInfoString(out, "not a token of this database");
      break;
    case Outcome::kStaleEpoch:
      if (slot_state(s.slot) == SlotState::kReady && slot_kind(s.slot) == SettleKind::kRevoked) {
        appendStringInfoString(out, "the claim was revoked");
        break;
      }
      appendStringInfoString(out, "the queue was fenced or dropped, or the token's place was reclaimed: settled, too long ago to say more");
      break;
    case Outcome::kSettling:
      appendStringInfo(out, "transaction %u is settling the message and has not ended", static_cast<uint32>(slot_xid(s.slot)));
      break;
    case Outcome::kForbidden:
      appendStringInfo(out, "UPDATE on baton_queue.%s is not granted", quote_identifier(s.queue->name));
      break;
    case Outcome::kLifetimeExceeded: {
      int64 left = s.queue->max_lifetime - (s.now - slot_claimed_at(s.slot));
      appendStringInfo(out, "the total lifetime of a lease is %.1f s here, %.1f s of it are left", static_cast<double>(s.queue->max_lifetime) / 1e6,
                       static_cast<double>(Max(left, 0)) / 1e6);
      break;
    }
    case Outcome::kExpiryExceeded:
      appendStringInfo(out, "the message expires in %.1f s", static_cast<double>(s.expires_at - s.now) / 1e6);
      break;
    case Outcome::kNotStarted:
      appendStringInfo(out, "not started yet, and to be started within %.1f s", static_cast<double>(Max(s.slot.deadline - s.now, 0)) / 1e6);
      break;
    case Outcome::kAlreadyStarted:
      appendStringInfo(out, "started %.1f s after the claim", static_cast<double>(s.slot.started_ms - 1) / 1e3);
      break;
    default:
      break;
  }
}

const char* hint_for(const Settlement& s) {
  switch (s.outcome) {
    case Outcome::kStaleGeneration:
    case Outcome::kLeaseExpired:
      return "Roll back: somebody else may be working on the message. For long work use baton.extend, or a longer lease.";
    case Outcome::kAlreadySettled:
      if (slot_kind(s.slot) == SettleKind::kExpired) return "Roll back: the message is not owed any more.";
      return "If this is a retry after a lost reply, the first attempt succeeded; do not repeat its effects.";
    case Outcome::kInvalidToken:
      return "Pass the token exactly as baton.claim returned it, in the same database.";
    case Outcome::kStaleEpoch:
      return "Roll back: this claim is over.";
    case Outcome::kSettling:
      return "Try again, or use baton.settle, which reports instead of waiting.";
    case Outcome::kForbidden:
      return "Ask the queue's owner for GRANT UPDATE on its view.";
    case Outcome::kLifetimeExceeded:
      return "Ask for a shorter lease, or raise max_lifetime with baton.alter_queue.";
    case Outcome::kExpiryExceeded:
      return "Ask for a shorter lease, and finish before the message expires.";
    case Outcome::kNotStarted:
      return "Call baton.start when the work begins: it gives the lease its full length.";
    case Outcome::kAlreadyStarted:
      return "Use baton.release, with failed => false if the message is not to blame.";
    default:
      return "Roll back.";
  }
}

}  // namespace

void raise_if_refused(const Settlement* items, int count, const char* verb) {
  int first = -1;
  int refused = 0;
  for (int i = 0; i < count; i++) {
    if (succeeded(items[i].outcome)) continue;
    if (first < 0) first = i;
    refused++;
  }
  if (first < 0) return;
  StringInfoData detail;
  initStringInfo(&detail);
  constexpr int kMaxLines = 100;
  int lines = 0;
  for (int i = 0; i < count && lines < kMaxLines; i++) {
    const Settlement& s = items[i];
    if (succeeded(s.outcome)) continue;
    lines++;
    if (lines > 1) appendStringInfoChar(&detail, '\n');
    if (count > 1) appendStringInfo(&detail, "Token %d: ", s.ord);
    if (s.parsed) appendStringInfo(&detail, "message %lld of queue \"%s\": ", static_cast<long long>(s.token.id), s.queue ? s.queue->name : "?");
    appendStringInfo(&detail, "%s: ", outcome_entry(s.outcome).word);
    describe(&detail, s);
    appendStringInfoChar(&detail, '.');
  }
  if (refused > lines) appendStringInfo(&detail, "\n%d more.", refused - lines);
  Outcome o = items[first].outcome;
  if (count == 1)
    ereport(ERROR, (errcode(outcome_sqlstate(o)), errmsg("%s refused: %s", verb, outcome_entry(o).meaning), errdetail("%s", detail.data),
                    errhint("%s", hint_for(items[first]))));
  ereport(ERROR, (errcode(outcome_sqlstate(o)), errmsg("%s refused: %d of %d tokens", verb, refused, count), errdetail("%s", detail.data),
                  errhint("%s", hint_for(items[first]))));
}

}  // namespace baton
