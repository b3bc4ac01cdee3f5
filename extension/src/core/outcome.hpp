// The outcome words: what a verb says happened to a message, with the SQLSTATE that verbs which raise use.
// One table for the server, the docs (baton.outcomes()) and the client; a test compares them.
#pragma once

#include <cstdint>

namespace baton {

enum class Outcome : uint8_t {
  kAcked,
  kReleased,
  kScheduled,
  kQuarantined,
  kHandedBack,
  kExtended,
  kStarted,
  kExpired,
  kRevoked,
  kStaleGeneration,
  kLeaseExpired,
  kAlreadySettled,
  kInvalidToken,
  kStaleEpoch,
  kSettling,
  kForbidden,
  kLifetimeExceeded,
  kExpiryExceeded,
  kNotStarted,
  kAlreadyStarted,
  kNotClaimed,
  kNotFound,
  kCount,
};

struct OutcomeEntry {
  const char* word;
  const char* sqlstate;  // "00000": success
  const char* meaning;
};

constexpr OutcomeEntry kOutcomes[] = {
    {"acked", "00000", "acknowledged; final when the transaction commits"},
    {"released", "00000", "ready again when the transaction commits"},
    {"scheduled", "00000", "ready again at its due time"},
    {"quarantined", "00000", "set aside with evidence"},
    {"handed_back", "00000", "ready again at once, no failure counted"},
    {"extended", "00000", "the lease has a new deadline"},
    {"started", "00000", "the start of execution is stamped"},
    {"expired", "00000", "released too late: its expiry comes before it could be ready again"},
    {"revoked", "00000", "the claim is over; its token is refused from now on"},
    {"stale_generation", "QB001", "the message has been claimed again since; another claim holds it"},
    {"lease_expired", "QB002", "the lease ended before the verb was called"},
    {"already_settled", "QB003", "the message was settled before"},
    {"invalid_token", "QB004", "not a token of this database"},
    {"stale_epoch", "QB008", "the place this token points to has been reclaimed, rebuilt or fenced"},
    {"settling", "55P03", "another transaction is settling this message and has not ended"},
    {"forbidden", "42501", "no UPDATE privilege on the queue"},
    {"lifetime_exceeded", "53400", "the lease cannot be extended beyond the queue's total lifetime"},
    {"expiry_exceeded", "53400", "the lease cannot be extended beyond the message's expiry"},
    {"not_started", "55000", "the lease is short until the message is started, and cannot be extended before"},
    {"already_started", "55000", "work on the message has begun, so it cannot be handed back"},
    {"not_claimed", "55000", "no claim holds the message"},
    {"not_found", "42704", "the queue has no such message"},
};
static_assert(sizeof(kOutcomes) / sizeof(kOutcomes[0]) == static_cast<int>(Outcome::kCount));

constexpr const OutcomeEntry& outcome_entry(Outcome o) { return kOutcomes[static_cast<int>(o)]; }
constexpr bool succeeded(Outcome o) { return o < Outcome::kStaleGeneration; }

}  // namespace baton
