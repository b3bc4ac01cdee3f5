// What becomes of a message that expires, for every state of its slot.
#include <doctest/doctest.h>

#include <cstring>

#include "core/expiry.hpp"

using namespace baton;

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kNow = 800000000 * kSecond;
constexpr int64_t kRecheck = 10 * kSecond;

Slot slot_in(SlotState state, int64_t deadline = 0, uint8_t flags = kExpiresFlag) {
  Slot s;
  std::memset(&s, 0, sizeof(s));
  s.state = static_cast<uint8_t>(state);
  s.kind = flags;
  s.id = 42;
  s.deadline = deadline;
  return s;
}

struct Judged {
  ExpiryStep step;
  int64_t again_at;
};

Judged judged(const Slot& s, int64_t expires_at, XidStatus status = XidStatus::kCommitted) {
  Judged j{ExpiryStep::kForget, -1};
  j.step = expiry_step(s, status, expires_at, kNow, kRecheck, &j.again_at);
  return j;
}

}  // namespace

TEST_CASE("nothing happens before the time has come, and then at once") {
  for (int64_t due : {int64_t{0}, kNow - kSecond, kNow + kSecond}) {
    Slot s = slot_in(SlotState::kReady, due);
    Judged j = judged(s, kNow + 1);
    CHECK(j.step == ExpiryStep::kWait);
    CHECK(j.again_at == kNow + 1);
    CHECK(judged(s, kNow).step == ExpiryStep::kExpire);
    CHECK(judged(s, kNow - kSecond).step == ExpiryStep::kExpire);
  }
}

TEST_CASE("a live claim is never ended") {
  Slot s = slot_in(SlotState::kClaimed, kNow + 1);
  Judged j = judged(s, kNow - kSecond);
  CHECK(j.step == ExpiryStep::kWait);
  CHECK(j.again_at == kNow + 1);
  // A long one may be let go before its deadline.
  s.deadline = kNow + 100 * kSecond;
  CHECK(judged(s, kNow - kSecond).again_at == kNow + kRecheck);
  // Before its expiry a claim is not of interest.
  CHECK(judged(s, kNow + 50 * kSecond).again_at == kNow + 50 * kSecond);
  s.deadline = kNow;
  CHECK(judged(s, kNow).step == ExpiryStep::kExpire);
}

TEST_CASE("a settlement or an enqueue in progress is left alone") {
  for (XidStatus status : {XidStatus::kInProgress, XidStatus::kMine, XidStatus::kTooOld})
    for (SlotState state : {SlotState::kSettling, SlotState::kInserted}) {
      Judged j = judged(slot_in(state, kNow - kSecond), kNow - kSecond, status);
      CHECK(j.step == ExpiryStep::kWait);
      CHECK(j.again_at == kNow + kRecheck);
    }
}

TEST_CASE("what is settled, or another cluster's work, is forgotten") {
  CHECK(judged(slot_in(SlotState::kGone), kNow - 1).step == ExpiryStep::kForget);
  CHECK(judged(slot_in(SlotState::kGone), kNow + 1).step == ExpiryStep::kForget);
  CHECK(judged(slot_in(SlotState::kEmpty), kNow - 1).step == ExpiryStep::kForget);
  CHECK(judged(slot_in(SlotState::kReady, 0, kExpiresFlag | kForeignFlag), kNow - 1).step == ExpiryStep::kForget);
}

TEST_CASE("the flag lies beside the kind and lives through every change of it") {
  Slot s = slot_in(SlotState::kReady);
  CHECK(slot_expires(s));
  CHECK(slot_kind(s) == SettleKind::kNone);
  CHECK(!slot_is_foreign(s));
  claim_slot(s, 1, 1, kNow, kSecond);
  CHECK(slot_expires(s));
  ready_slot(s, SettleKind::kHandedBack, 0, false);
  CHECK(slot_expires(s));
  CHECK(slot_kind(s) == SettleKind::kHandedBack);
  s.state = static_cast<uint8_t>(SlotState::kSettling);
  set_slot_kind(s, SettleKind::kReleased);
  CHECK(resolve_slot(s, XidStatus::kCommitted));
  CHECK(slot_expires(s));
  CHECK(!slot_expires(slot_in(SlotState::kReady, 0, static_cast<uint8_t>(kKindMask | kForeignFlag))));
}

TEST_CASE("a lease that ends with the message") {
  CHECK(lease_until_expiry(30 * kSecond, kNow, kNow + 60 * kSecond) == 30 * kSecond);
  CHECK(lease_until_expiry(30 * kSecond, kNow, kNow + 30 * kSecond) == 30 * kSecond);
  CHECK(lease_until_expiry(30 * kSecond, kNow, kNow + 10 * kSecond) == 10 * kSecond);
  CHECK(lease_until_expiry(30 * kSecond, kNow, kNow + 1) == 1);
  CHECK(lease_until_expiry(30 * kSecond, kNow, INT64_MAX) == 30 * kSecond);
}
