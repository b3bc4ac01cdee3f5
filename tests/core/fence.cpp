// The fence: every state and kind against the right and a wrong token, and random histories against a plain model.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "core/backoff.hpp"
#include "core/verdict.hpp"

using namespace baton;

namespace {

constexpr int64_t kSecond = 1000000;
constexpr int64_t kNow = 800000000 * kSecond;

Slot slot_in(SlotState state, SettleKind kind = SettleKind::kNone) {
  Slot s;
  std::memset(&s, 0, sizeof(s));
  s.state = static_cast<uint8_t>(state);
  set_slot_kind(s, kind);
  s.id = 42;
  set_slot_xid(s, 1000);
  s.generation = 7;
  s.nonce = 0x5555;
  s.deadline = kNow + kSecond;
  s.held_ms = 1000;
  return s;
}

Token token_of(const Slot& s) {
  Token t{};
  t.id = s.id;
  t.generation = s.generation;
  t.nonce = s.nonce;
  return t;
}

Outcome judged(const Slot& s, XidStatus status = XidStatus::kCommitted, int64_t now = kNow) {
  return judge(s, status, token_of(s), now);
}

}  // namespace

TEST_CASE("a live claim belongs to its token until the deadline, exclusive") {
  Slot s = slot_in(SlotState::kClaimed);
  CHECK(judged(s, XidStatus::kCommitted, s.deadline - 1) == Outcome::kAcked);
  CHECK(judged(s, XidStatus::kCommitted, s.deadline) == Outcome::kLeaseExpired);
  CHECK(judged(s, XidStatus::kCommitted, s.deadline + 1) == Outcome::kLeaseExpired);
}

TEST_CASE("a message that is being settled") {
  for (SettleKind k : {SettleKind::kAcked, SettleKind::kReleased, SettleKind::kReturned, SettleKind::kQuarantined}) {
    Slot s = slot_in(SlotState::kSettling, k);
    CHECK(judged(s, XidStatus::kMine) == Outcome::kAlreadySettled);
    CHECK(judged(s, XidStatus::kInProgress) == Outcome::kSettling);
    // also when the lease has ended meanwhile: the settlement began in time
    CHECK(judged(s, XidStatus::kInProgress, s.deadline + kSecond) == Outcome::kSettling);
  }
}

TEST_CASE("a message that is ready again remembers how it came back") {
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kReleased)) == Outcome::kAlreadySettled);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kReturned)) == Outcome::kAlreadySettled);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kHandedBack)) == Outcome::kAlreadySettled);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kVoid)) == Outcome::kLeaseExpired);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kFenced)) == Outcome::kStaleEpoch);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kRevoked)) == Outcome::kStaleEpoch);
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kDisconnected)) == Outcome::kLeaseExpired);
  // How it had ended was forgotten: not "already settled", or a worker would take its work for done.
  CHECK(judged(slot_in(SlotState::kReady, SettleKind::kNone)) == Outcome::kLeaseExpired);
}

TEST_CASE("a message that is gone was settled") {
  for (SettleKind k :
       {SettleKind::kAcked, SettleKind::kQuarantined, SettleKind::kMoved, SettleKind::kPurged, SettleKind::kExpired})
    CHECK(judged(slot_in(SlotState::kGone, k)) == Outcome::kAlreadySettled);
}

TEST_CASE("a slot of another message, or none, answers stale_epoch") {
  for (SlotState state : {SlotState::kEmpty, SlotState::kInserted, SlotState::kReady, SlotState::kClaimed,
                          SlotState::kSettling, SlotState::kGone}) {
    Slot s = slot_in(state);
    Token t = token_of(s);
    t.id = 43;
    for (XidStatus status : {XidStatus::kMine, XidStatus::kInProgress, XidStatus::kCommitted})
      CHECK(judge(s, status, t, kNow) == Outcome::kStaleEpoch);
  }
  CHECK(judged(slot_in(SlotState::kEmpty)) == Outcome::kStaleEpoch);
}

TEST_CASE("another claim's token never gets in, whatever the state") {
  for (SlotState state :
       {SlotState::kInserted, SlotState::kReady, SlotState::kClaimed, SlotState::kSettling, SlotState::kGone})
    for (int k = 0; k < 12; k++)
      for (XidStatus status :
           {XidStatus::kMine, XidStatus::kInProgress, XidStatus::kCommitted, XidStatus::kAborted, XidStatus::kTooOld}) {
        Slot s = slot_in(state, static_cast<SettleKind>(k));
        Token t = token_of(s);
        t.nonce ^= 1;
        CHECK(judge(s, status, t, kNow) == Outcome::kStaleGeneration);
      }
}

TEST_CASE("the nonce decides, not the generation") {
  Slot s = slot_in(SlotState::kClaimed);
  Token t = token_of(s);
  t.generation = 12345;  // as after a crash that forgot an unflushed claim
  CHECK(judge(s, XidStatus::kCommitted, t, kNow) == Outcome::kAcked);
  t = token_of(s);
  t.nonce = 0x6666;
  CHECK(judge(s, XidStatus::kCommitted, t, kNow) == Outcome::kStaleGeneration);
}

TEST_CASE("a claim that was over when its message was moved away is told so, and only that one") {
  Slot s = slot_in(SlotState::kGone, SettleKind::kMoved);
  Token t = token_of(s);
  s.nonce = 0;
  CHECK(judge(s, XidStatus::kCommitted, t, kNow) == Outcome::kLeaseExpired);
  t.generation--;
  CHECK(judge(s, XidStatus::kCommitted, t, kNow) == Outcome::kStaleGeneration);
  s = slot_in(SlotState::kGone, SettleKind::kAcked);
  t = token_of(s);
  s.nonce = 0;
  CHECK(judge(s, XidStatus::kCommitted, t, kNow) == Outcome::kStaleGeneration);
}

// One message, random claims, settlements with commit and rollback, extensions, rollbacks of claims, and time. The
// model knows only who was told what; the slot must never let in anybody the model does not.
TEST_CASE("random histories") {
  std::mt19937_64 random(42);
  for (int history = 0; history < 400; history++) {
    Slot s = slot_in(SlotState::kInserted);
    s.generation = 0;
    s.nonce = 0;
    s.deadline = 0;
    s.held_ms = 0;
    resolve_slot(s, XidStatus::kCommitted);
    std::vector<Token> told;
    std::set<uint64_t> nonces;
    bool held = false;  // the last token told owns the message, as long as its lease runs
    int64_t lease_end = 0;
    int64_t due = 0;
    bool open = false;  // a settlement is open
    int failures = 0;
    uint32_t generation = 0;
    int64_t now = kNow;
    bool settled = false;
    for (int step = 0; step < 80; step++) {
      now += static_cast<int64_t>(random() % 3) * 400000 + 1;
      XidStatus status = open ? XidStatus::kInProgress : XidStatus::kCommitted;
      // Whoever asks: at most one token owns it, and it is the last one told.
      for (size_t i = 0; i < told.size(); i++) {
        bool owns = judge(s, status, told[i], now) == Outcome::kAcked;
        bool expected = i + 1 == told.size() && held && !open && !settled && now < lease_end;
        CHECK(owns == expected);
      }
      SlotPhase phase = slot_phase(s, status, now);
      bool claimable = phase == SlotPhase::kDue || phase == SlotPhase::kLapsed;
      CHECK(claimable == (!settled && !open && (held ? now >= lease_end : now >= due)));
      switch (random() % 8) {
        case 0:
        case 1:
          if (!claimable) break;
          if (held) failures++;
          claim_slot(s, random() | 1, 3, now, kSecond);
          CHECK(nonces.insert(s.nonce).second);
          generation++;
          told.push_back(token_of(s));
          held = true;
          lease_end = now + kSecond;
          break;
        case 2:  // settle: open
          if (!held || open || settled || now >= lease_end) break;
          s.state = static_cast<uint8_t>(SlotState::kSettling);
          set_slot_kind(s, random() % 4 == 0   ? SettleKind::kAcked
                           : random() % 2 == 0 ? SettleKind::kReleased
                                               : SettleKind::kReturned);
          s.due_delta = pack_due(now + 2 * kSecond, s.deadline);
          open = true;
          break;
        case 3:
          if (!open) break;
          open = false;
          if (slot_kind(s) == SettleKind::kAcked) {
            settled = true;
          } else {
            due = unpack_due(s.due_delta, s.deadline);
            if (slot_kind(s) == SettleKind::kReleased) failures++;
          }
          held = false;
          CHECK(resolve_slot(s, XidStatus::kCommitted));
          break;
        case 4:
          if (!open) break;
          open = false;
          CHECK(resolve_slot(s, XidStatus::kAborted));
          break;
        case 5:  // its claim was rolled back
          if (!held || open || settled || now >= lease_end) break;
          ready_slot(s, SettleKind::kVoid, now + backoff_us(kSecond, kSecond, failures + 1), true);
          due = now + kSecond;
          failures++;
          held = false;
          break;
        case 6:
          if (!held || open || settled || now >= lease_end) break;
          ready_slot(s, SettleKind::kHandedBack, 0, false);
          due = 0;
          held = false;
          break;
        default:  // extend
          if (!held || open || settled || now >= lease_end) break;
          s.deadline = lease_end = now + kSecond;
          break;
      }
      CHECK(s.generation == generation);
      if (!open) CHECK(s.failures == failures);
    }
  }
}
