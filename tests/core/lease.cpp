// Leases beside the plain claim: bound to a session, short until started, taken away.
#include <doctest/doctest.h>

#include <cstring>

#include "core/slot.hpp"
#include "core/verdict.hpp"

using namespace baton;

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kNow = 800000000 * kSecond;
constexpr int64_t kHour = 3600 * kSecond;
constexpr uint64_t kNonce = 0x1122334455667788ULL;

Slot claimed(int64_t lease, int64_t start_within, bool session_bound, int64_t at = kNow) {
  Slot s;
  std::memset(&s, 0, sizeof(s));
  s.state = static_cast<uint8_t>(SlotState::kReady);
  s.id = 42;
  s.failures = 3;
  claim_slot(s, kNonce, 9, at, lease, start_within, session_bound);
  return s;
}

Token token_of(const Slot& s) {
  Token t;
  std::memset(&t, 0, sizeof(t));
  t.id = s.id;
  t.nonce = s.nonce;
  t.generation = s.generation;
  t.claimed_at = slot_claimed_at(s);
  return t;
}

bool same(const Slot& a, const Slot& b) { return std::memcmp(&a, &b, sizeof(Slot)) == 0; }

Outcome asked(const Slot& s, int64_t now) { return judge(s, XidStatus::kCommitted, token_of(s), now); }

}  // namespace

TEST_CASE("a session-bound claim is a claim") {
  Slot s = claimed(30 * kSecond, 0, true);
  CHECK(slot_is_session_bound(s));
  CHECK(slot_state(s) == SlotState::kClaimed);
  CHECK(slot_kind(s) == SettleKind::kNone);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kHeld);
  CHECK(asked(s, kNow) == Outcome::kAcked);
  CHECK(kSessionFlag == 0x40);
  CHECK((kSessionFlag & kKindMask) == 0);
  CHECK((kSessionFlag & kForeignFlag) == 0);
}

TEST_CASE("the flag goes with the claim: through a settlement that is rolled back, and no further") {
  for (SettleKind k : {SettleKind::kAcked, SettleKind::kReleased, SettleKind::kReturned, SettleKind::kQuarantined, SettleKind::kMoved}) {
    Slot s = claimed(30 * kSecond, 0, true);
    s.state = static_cast<uint8_t>(SlotState::kSettling);
    set_slot_kind(s, k);
    CHECK(slot_is_session_bound(s));
    Slot committed = s;
    REQUIRE(resolve_slot(s, XidStatus::kAborted));
    CHECK(slot_is_session_bound(s));
    REQUIRE(resolve_slot(committed, XidStatus::kCommitted));
    if (releases(k)) CHECK_FALSE(slot_is_session_bound(committed));
  }
  for (SettleKind how : {SettleKind::kHandedBack, SettleKind::kVoid, SettleKind::kFenced, SettleKind::kRevoked, SettleKind::kDisconnected}) {
    Slot s = claimed(30 * kSecond, 0, true);
    ready_slot(s, how, 0, false);
    CHECK_FALSE(slot_is_session_bound(s));
    CHECK(slot_kind(s) == how);
  }
  Slot s = claimed(30 * kSecond, 0, true);
  claim_slot(s, 7, 1, kNow + kHour, kSecond);
  CHECK_FALSE(slot_is_session_bound(s));
}

TEST_CASE("claims of sessions that did not live through a restart are over") {
  const int64_t began = kNow + 10 * kSecond;
  Slot s = claimed(30 * kSecond, 0, true);
  Slot before = s;
  end_orphan(s, began);
  CHECK(s.deadline == began);
  CHECK(slot_phase(s, XidStatus::kCommitted, began) == SlotPhase::kLapsed);
  CHECK(asked(s, began + 1) == Outcome::kLeaseExpired);
  CHECK(s.nonce == before.nonce);
  CHECK(s.failures == before.failures);
  // The time of the claim stays known, rounded down to the millisecond.
  CHECK(slot_claimed_at(s) <= slot_claimed_at(before));
  CHECK(slot_claimed_at(s) > slot_claimed_at(before) - 1000);
  CHECK(s.held_ms > 0);
  Slot again = s;
  end_orphan(again, began);
  CHECK(same(again, s));
  claim_slot(s, 1, 1, began + kSecond, kSecond);
  CHECK(s.failures == 4);
}

TEST_CASE("others go on") {
  const int64_t began = kNow + 10 * kSecond;
  Slot unbound = claimed(30 * kSecond, 0, false);
  Slot young = claimed(30 * kSecond, 0, true, began + 5 * kSecond);
  Slot lapsed = claimed(5 * kSecond, 0, true);
  Slot ready = claimed(30 * kSecond, 0, true);
  ready_slot(ready, SettleKind::kVoid, kNow + kHour, true);
  Slot settling = claimed(30 * kSecond, 0, true);
  settling.state = static_cast<uint8_t>(SlotState::kSettling);
  for (Slot* s : {&unbound, &young, &lapsed, &ready, &settling}) {
    Slot before = *s;
    end_orphan(*s, began);
    CHECK(same(*s, before));
  }
  // In recovery nothing is known to be over: the sessions are those of another server.
  Slot s = claimed(30 * kSecond, 0, true);
  Slot before = s;
  end_orphan(s, 0);
  CHECK(same(s, before));
}

TEST_CASE("an orphan that has been held for ever does not overflow") {
  Slot s = claimed(30 * kSecond, 0, true);
  lengthen_slot(s, kNow + 4294967295LL * 1000, kNow);
  end_orphan(s, kNow + 4294967294LL * 1000);
  CHECK(s.deadline == kNow + 4294967294LL * 1000);
  CHECK(s.held_ms == 4294967294U);
}

TEST_CASE("a lease is short until it is started") {
  Slot s = claimed(600 * kSecond, 30 * kSecond, false);
  CHECK(waits_for_start(s));
  CHECK(s.deadline == kNow + 30 * kSecond);
  CHECK(s.held_ms == 30000);
  CHECK(lease_at_start(s) == 600 * kSecond);
  start_slot(s, kNow + 20 * kSecond, kNow, kNow + kHour);
  CHECK_FALSE(waits_for_start(s));
  CHECK(s.deadline == kNow + 620 * kSecond);
  CHECK(s.held_ms == 620000);
  CHECK(slot_claimed_at(s) == kNow);
  CHECK(s.started_ms == 20001);
  Slot once = s;
  start_slot(s, kNow + 40 * kSecond, kNow, kNow + kHour);
  CHECK(same(s, once));
}

TEST_CASE("start never shortens a lease, and ends in time") {
  Slot s = claimed(20 * kSecond, 30 * kSecond, false);
  CHECK(s.deadline == kNow + 20 * kSecond);
  CHECK(waits_for_start(s));
  start_slot(s, kNow, kNow, kNow + 10 * kSecond);
  CHECK(s.deadline == kNow + 20 * kSecond);
  CHECK_FALSE(waits_for_start(s));
  s = claimed(600 * kSecond, 300 * kSecond, false);
  start_slot(s, kNow + 200 * kSecond, kNow, kNow + 700 * kSecond);
  CHECK(s.deadline == kNow + 700 * kSecond);
}

TEST_CASE("without the bound start leaves the lease alone") {
  Slot s = claimed(600 * kSecond, 0, false);
  CHECK_FALSE(waits_for_start(s));
  start_slot(s, kNow + 20 * kSecond, kNow, kNow + kHour);
  CHECK(s.deadline == kNow + 600 * kSecond);
  CHECK(s.started_ms == 20001);
}

TEST_CASE("the lease that start gives is never rounded down") {
  for (int64_t lease : {int64_t{1}, kDueUnit - 1, kDueUnit, kDueUnit + 1, 12 * kHour, 200 * 24 * kHour}) {
    Slot s = claimed(lease, 1, false);
    CHECK(lease_at_start(s) >= lease);
    CHECK(lease_at_start(s) < lease + kDueUnit);
  }
}

TEST_CASE("lengthened, never shortened") {
  Slot s = claimed(30 * kSecond, 0, false);
  Slot before = s;
  lengthen_slot(s, kNow + 30 * kSecond, kNow);
  lengthen_slot(s, kNow, kNow);
  CHECK(same(s, before));
  lengthen_slot(s, kNow + 31 * kSecond + 1, kNow);
  CHECK(s.deadline == kNow + 31 * kSecond + 1);
  CHECK(s.held_ms == 31001);
}

TEST_CASE("taken away: ready again, and the token is refused") {
  for (SettleKind how : {SettleKind::kRevoked, SettleKind::kDisconnected}) {
    for (bool failed : {false, true}) {
      Slot s = claimed(30 * kSecond, 0, true);
      take_away(s, how, kNow + kSecond, kNow + kHour, failed, 20);
      CHECK(slot_state(s) == SlotState::kReady);
      CHECK(slot_kind(s) == how);
      CHECK(s.deadline == kNow + kHour);
      CHECK(s.failures == (failed ? 4 : 3));
      CHECK(asked(s, kNow + kSecond) == (how == SettleKind::kRevoked ? Outcome::kStaleEpoch : Outcome::kLeaseExpired));
    }
  }
}

TEST_CASE("taken away with the last failure: lapsed, and counted by whoever sets it aside") {
  Slot s = claimed(30 * kSecond, 0, true);
  take_away(s, SettleKind::kDisconnected, kNow + kSecond, kNow + kHour, true, 4);
  CHECK(slot_state(s) == SlotState::kClaimed);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow + kSecond) == SlotPhase::kLapsed);
  CHECK(s.failures == 3);
  CHECK(asked(s, kNow + kSecond) == Outcome::kLeaseExpired);
  Slot once = s;
  take_away(s, SettleKind::kDisconnected, kNow + 2 * kSecond, 0, true, 4);
  CHECK(same(s, once));
  // At the very moment of the claim there is still a lease to speak of.
  s = claimed(30 * kSecond, 0, false);
  take_away(s, SettleKind::kRevoked, kNow, 0, true, 4);
  CHECK(s.held_ms >= 1);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kLapsed);
  // Without a failure the attempts are not used up.
  s = claimed(30 * kSecond, 0, false);
  take_away(s, SettleKind::kRevoked, kNow, 0, false, 4);
  CHECK(slot_state(s) == SlotState::kReady);
}
