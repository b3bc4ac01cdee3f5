// The slot: its bytes (the on-disk format), and every transition of its state machine.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>

#include "core/slot.hpp"

using namespace baton;

namespace {

const SlotState kStates[] = {SlotState::kEmpty,   SlotState::kInserted, SlotState::kReady,
                             SlotState::kClaimed, SlotState::kSettling, SlotState::kGone};
const SettleKind kKinds[] = {SettleKind::kNone,       SettleKind::kAcked,       SettleKind::kReleased,
                             SettleKind::kReturned,   SettleKind::kQuarantined, SettleKind::kMoved,
                             SettleKind::kPurged,     SettleKind::kExpired,     SettleKind::kAborted,
                             SettleKind::kHandedBack, SettleKind::kVoid,        SettleKind::kFenced};
const XidStatus kStatuses[] = {XidStatus::kMine, XidStatus::kInProgress, XidStatus::kCommitted, XidStatus::kAborted,
                               XidStatus::kTooOld};
constexpr int64_t kSecond = 1000000;
constexpr int64_t kNow = 800000000 * kSecond;

Slot slot_in(SlotState state, SettleKind kind = SettleKind::kNone) {
  Slot s;
  std::memset(&s, 0, sizeof(s));
  s.state = static_cast<uint8_t>(state);
  set_slot_kind(s, kind);
  s.id = 42;
  set_slot_xid(s, 0x123456789abcULL);
  s.failures = 3;
  s.generation = 7;
  s.nonce = 0x1122334455667788ULL;
  s.deadline = kNow + 30 * kSecond;
  s.worker = 99;
  s.held_ms = 30000;
  s.started_ms = 11;
  s.due_delta = 500;
  if (state == SlotState::kInserted) s.held_ms = s.started_ms = 0;  // a fresh message; see the moved claim
  return s;
}

bool same(const Slot& a, const Slot& b) { return std::memcmp(&a, &b, sizeof(Slot)) == 0; }

}  // namespace

TEST_CASE("the layout is the on-disk format") {
  CHECK(sizeof(Slot) == 64);
  CHECK(offsetof(Slot, tid) == 0);
  CHECK(offsetof(Slot, state) == 6);
  CHECK(offsetof(Slot, kind) == 7);
  CHECK(offsetof(Slot, xid_low) == 8);
  CHECK(offsetof(Slot, xid_high) == 12);
  CHECK(offsetof(Slot, failures) == 14);
  CHECK(offsetof(Slot, id) == 16);
  CHECK(offsetof(Slot, key_hash) == 24);
  CHECK(offsetof(Slot, generation) == 28);
  CHECK(offsetof(Slot, nonce) == 32);
  CHECK(offsetof(Slot, deadline) == 40);
  CHECK(offsetof(Slot, worker) == 48);
  CHECK(offsetof(Slot, held_ms) == 52);
  CHECK(offsetof(Slot, started_ms) == 56);
  CHECK(offsetof(Slot, due_delta) == 60);
}

TEST_CASE("states and kinds on disk keep their numbers") {
  for (int i = 0; i < 6; i++) CHECK(static_cast<int>(kStates[i]) == i);
  for (int i = 0; i < 12; i++) CHECK(static_cast<int>(kKinds[i]) == i);
  CHECK(kForeignFlag == 0x80);
  CHECK(kKindMask == 0x1f);
}

TEST_CASE("48 bits of transaction id") {
  Slot s = slot_in(SlotState::kInserted);
  for (uint64_t xid :
       {uint64_t{0}, uint64_t{3}, uint64_t{0xffffffff}, uint64_t{0x100000000}, uint64_t{0xffffffffffff}}) {
    set_slot_xid(s, xid);
    CHECK(slot_xid(s) == xid);
    CHECK(s.failures == 3);
  }
}

TEST_CASE("kind and foreign flag do not touch each other") {
  Slot s = slot_in(SlotState::kReady);
  s.kind = kForeignFlag;
  for (SettleKind k : kKinds) {
    set_slot_kind(s, k);
    CHECK(slot_kind(s) == k);
    CHECK(slot_is_foreign(s));
  }
  s.kind = 0;
  for (SettleKind k : kKinds) {
    set_slot_kind(s, k);
    CHECK(slot_kind(s) == k);
    CHECK_FALSE(slot_is_foreign(s));
  }
}

TEST_CASE("an enqueue that committed is ready, one that was rolled back never was") {
  Slot s = slot_in(SlotState::kInserted);
  s.deadline = 0;
  Slot before = s;
  for (XidStatus open : {XidStatus::kMine, XidStatus::kInProgress, XidStatus::kTooOld}) {
    CHECK_FALSE(resolve_slot(s, open));
    CHECK(same(s, before));
  }
  CHECK(resolve_slot(s, XidStatus::kCommitted));
  CHECK(slot_state(s) == SlotState::kReady);
  CHECK(s.deadline == 0);
  CHECK(s.generation == before.generation);
  CHECK(s.failures == before.failures);
  s = before;
  CHECK(resolve_slot(s, XidStatus::kAborted));
  CHECK(slot_state(s) == SlotState::kGone);
  CHECK(slot_kind(s) == SettleKind::kAborted);
}

TEST_CASE("a claim that moved here goes on when the move commits, and was never here when it is rolled back") {
  Slot s = slot_in(SlotState::kInserted);
  s.held_ms = 30000;
  s.started_ms = 11;
  Slot before = s;
  CHECK(resolve_slot(s, XidStatus::kCommitted));
  CHECK(slot_state(s) == SlotState::kClaimed);
  CHECK(s.nonce == before.nonce);
  CHECK(s.deadline == before.deadline);
  CHECK(s.started_ms == before.started_ms);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kHeld);
  s = before;
  CHECK(resolve_slot(s, XidStatus::kAborted));
  CHECK(slot_state(s) == SlotState::kGone);
}

TEST_CASE("a foreign message stays foreign when its enqueue commits") {
  Slot s = slot_in(SlotState::kInserted);
  s.kind = kForeignFlag;
  s.deadline = 0;
  REQUIRE(resolve_slot(s, XidStatus::kCommitted));
  CHECK(slot_is_foreign(s));
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kForeign);
}

TEST_CASE("a settlement that was rolled back leaves the claim as it was") {
  for (SettleKind k : {SettleKind::kAcked, SettleKind::kReleased, SettleKind::kReturned, SettleKind::kQuarantined,
                       SettleKind::kMoved, SettleKind::kPurged, SettleKind::kExpired, SettleKind::kDeferred}) {
    Slot s = slot_in(SlotState::kSettling, k);
    Slot before = s;
    REQUIRE(resolve_slot(s, XidStatus::kAborted));
    CHECK(slot_state(s) == SlotState::kClaimed);
    CHECK(slot_kind(s) == SettleKind::kNone);
    CHECK(s.deadline == before.deadline);
    CHECK(s.nonce == before.nonce);
    CHECK(s.generation == before.generation);
    CHECK(s.failures == before.failures);
    CHECK(s.held_ms == before.held_ms);
    CHECK(s.started_ms == before.started_ms);
    CHECK(s.worker == before.worker);
    // A release has written its own due time there; other settlements leave what a start would give.
    CHECK(s.due_delta == (releases(k) ? 0 : before.due_delta));
  }
}

TEST_CASE("setting a ready message aside, rolled back: it is ready as before, without a failure") {
  for (SettleKind k : {SettleKind::kQuarantined, SettleKind::kExpired, SettleKind::kPurged}) {
    Slot s = slot_in(SlotState::kSettling, k);
    s.generation = 0;
    s.nonce = 0;
    s.held_ms = 0;
    s.started_ms = 0;
    s.due_delta = 0;
    s.deadline = kNow - kSecond;
    REQUIRE(resolve_slot(s, XidStatus::kAborted));
    CHECK(slot_state(s) == SlotState::kReady);
    CHECK(slot_phase(s, XidStatus::kAborted, kNow) == SlotPhase::kDue);
    CHECK(s.failures == 3);
    claim_slot(s, 1, 1, kNow, kSecond);
    CHECK(s.failures == 3);
  }
}

TEST_CASE("a settlement that committed") {
  for (SettleKind k :
       {SettleKind::kAcked, SettleKind::kQuarantined, SettleKind::kMoved, SettleKind::kPurged, SettleKind::kExpired}) {
    Slot s = slot_in(SlotState::kSettling, k);
    Slot before = s;
    REQUIRE(resolve_slot(s, XidStatus::kCommitted));
    CHECK(slot_state(s) == SlotState::kGone);
    CHECK(slot_kind(s) == k);
    CHECK(s.nonce == before.nonce);  // goes on answering for its token
    CHECK(s.generation == before.generation);
    CHECK(s.failures == before.failures);
  }
  Slot failed = slot_in(SlotState::kSettling, SettleKind::kReleased);
  int64_t due = unpack_due(failed.due_delta, failed.deadline);
  REQUIRE(resolve_slot(failed, XidStatus::kCommitted));
  CHECK(slot_state(failed) == SlotState::kReady);
  CHECK(failed.deadline == due);
  CHECK(failed.failures == 4);
  CHECK(failed.generation == 7);
  CHECK(failed.nonce == 0x1122334455667788ULL);
  CHECK(failed.held_ms == 0);
  CHECK(failed.started_ms == 0);
  CHECK(failed.due_delta == 0);
  Slot returned = slot_in(SlotState::kSettling, SettleKind::kReturned);
  REQUIRE(resolve_slot(returned, XidStatus::kCommitted));
  CHECK(slot_state(returned) == SlotState::kReady);
  CHECK(returned.failures == 3);
  CHECK(returned.deadline == due);
}

TEST_CASE("failures never wrap") {
  Slot s = slot_in(SlotState::kSettling, SettleKind::kReleased);
  s.failures = kMaxFailures;
  resolve_slot(s, XidStatus::kCommitted);
  CHECK(s.failures == kMaxFailures);
  s = slot_in(SlotState::kClaimed);
  s.failures = kMaxFailures;
  claim_slot(s, 1, 1, kNow, kSecond);
  CHECK(s.failures == kMaxFailures);
  ready_slot(s, SettleKind::kVoid, 0, true);
  CHECK(s.failures == kMaxFailures);
}

TEST_CASE("an open settlement, and one that the commit log has forgotten, are left alone") {
  for (SettleKind k : kKinds)
    for (XidStatus open : {XidStatus::kMine, XidStatus::kInProgress, XidStatus::kTooOld}) {
      Slot s = slot_in(SlotState::kSettling, k);
      Slot before = s;
      CHECK_FALSE(resolve_slot(s, open));
      CHECK(same(s, before));
    }
}

TEST_CASE("states without a transaction do not change, whatever the status") {
  for (SlotState state : {SlotState::kEmpty, SlotState::kReady, SlotState::kClaimed, SlotState::kGone})
    for (SettleKind k : kKinds)
      for (XidStatus status : kStatuses) {
        Slot s = slot_in(state, k);
        Slot before = s;
        CHECK_FALSE(resolve_slot(s, status));
        CHECK(same(s, before));
        CHECK_FALSE(slot_has_open_xid(s));
      }
}

TEST_CASE("resolving twice changes nothing more") {
  for (SlotState state : kStates)
    for (SettleKind k : kKinds)
      for (XidStatus status : kStatuses) {
        Slot s = slot_in(state, k);
        resolve_slot(s, status);
        Slot once = s;
        CHECK_FALSE(resolve_slot(s, status));
        CHECK(same(s, once));
      }
}

TEST_CASE("phases") {
  CHECK(slot_phase(slot_in(SlotState::kEmpty), XidStatus::kCommitted, kNow) == SlotPhase::kNothing);
  CHECK(slot_phase(slot_in(SlotState::kGone, SettleKind::kAcked), XidStatus::kCommitted, kNow) == SlotPhase::kNothing);
  for (XidStatus open : {XidStatus::kMine, XidStatus::kInProgress}) {
    CHECK(slot_phase(slot_in(SlotState::kInserted), open, kNow) == SlotPhase::kPending);
    CHECK(slot_phase(slot_in(SlotState::kSettling, SettleKind::kAcked), open, kNow) == SlotPhase::kSettling);
  }
  CHECK(slot_phase(slot_in(SlotState::kInserted), XidStatus::kTooOld, kNow) == SlotPhase::kAskRow);
  CHECK(slot_phase(slot_in(SlotState::kSettling), XidStatus::kTooOld, kNow) == SlotPhase::kAskRow);
}

TEST_CASE("due: at the very microsecond, never before it") {
  Slot s = slot_in(SlotState::kReady);
  s.deadline = kNow;
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow - 1) == SlotPhase::kLater);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kDue);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow + 1) == SlotPhase::kDue);
  s.deadline = 0;
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kDue);
}

TEST_CASE("a lease is half open: now < deadline owns, at the deadline it is over") {
  Slot s = slot_in(SlotState::kClaimed);
  s.deadline = kNow;
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow - 1) == SlotPhase::kHeld);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kLapsed);
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow + 1) == SlotPhase::kLapsed);
}

TEST_CASE("foreign comes before due and later") {
  Slot s = slot_in(SlotState::kReady);
  s.kind |= kForeignFlag;
  s.deadline = 0;
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kForeign);
  s.deadline = kNow + kSecond;
  CHECK(slot_phase(s, XidStatus::kCommitted, kNow) == SlotPhase::kForeign);
}

TEST_CASE("what keeps a segment from being reclaimed") {
  for (SlotState state : kStates)
    CHECK(slot_is_unsettled(slot_in(state)) == (state != SlotState::kEmpty && state != SlotState::kGone));
  for (SlotState state : kStates)
    CHECK(slot_has_open_xid(slot_in(state)) == (state == SlotState::kInserted || state == SlotState::kSettling));
}

TEST_CASE("claiming a ready message") {
  Slot s = slot_in(SlotState::kReady, SettleKind::kReleased);
  claim_slot(s, 0xabcdef, 5, kNow, 30 * kSecond);
  CHECK(slot_state(s) == SlotState::kClaimed);
  CHECK(slot_kind(s) == SettleKind::kNone);
  CHECK(s.generation == 8);
  CHECK(s.nonce == 0xabcdef);
  CHECK(s.worker == 5);
  CHECK(s.failures == 3);  // no failure: it was given back
  CHECK(s.deadline == kNow + 30 * kSecond);
  CHECK(s.held_ms == 30000);
  CHECK(s.started_ms == 0);
  CHECK(s.due_delta == 0);
  CHECK(s.id == 42);
  CHECK(slot_claimed_at(s) == kNow);
}

TEST_CASE("claiming an expired claim counts its failure first") {
  Slot s = slot_in(SlotState::kClaimed);
  claim_slot(s, 0xabcdef, 5, kNow, kSecond);
  CHECK(s.failures == 4);
  CHECK(s.generation == 8);
}

TEST_CASE("the time of the claim is known to the millisecond, and never later than it was") {
  for (int64_t lease : {int64_t{100000}, int64_t{100001}, int64_t{1234567}, int64_t{604800} * kSecond}) {
    Slot s = slot_in(SlotState::kReady);
    claim_slot(s, 1, 1, kNow, lease);
    CHECK(s.deadline == kNow + lease);
    CHECK(slot_claimed_at(s) <= kNow);
    CHECK(slot_claimed_at(s) > kNow - 1000);
  }
}

TEST_CASE("back to ready without a transaction") {
  for (SettleKind how : {SettleKind::kHandedBack, SettleKind::kVoid, SettleKind::kFenced})
    for (bool failed : {false, true}) {
      Slot s = slot_in(SlotState::kClaimed);
      ready_slot(s, how, kNow + kSecond, failed);
      CHECK(slot_state(s) == SlotState::kReady);
      CHECK(slot_kind(s) == how);
      CHECK(s.deadline == kNow + kSecond);
      CHECK(s.failures == (failed ? 4 : 3));
      CHECK(s.generation == 7);
      CHECK(s.nonce == 0x1122334455667788ULL);
      CHECK(s.held_ms == 0);
      CHECK(s.started_ms == 0);
    }
}

TEST_CASE("the due time of a release beside the deadline: rounded up, never early") {
  for (int64_t offset :
       {int64_t{-30} * kSecond, int64_t{-10001}, int64_t{-10000}, int64_t{-9999}, int64_t{-1}, int64_t{0}, int64_t{1},
        int64_t{9999}, int64_t{10000}, int64_t{10001}, int64_t{86400} * kSecond, int64_t{180} * 86400 * kSecond}) {
    CAPTURE(offset);
    int64_t due = unpack_due(pack_due(kNow + offset, kNow), kNow);
    CHECK(due >= kNow + offset);
    CHECK(due < kNow + offset + kDueUnit);
  }
}

TEST_CASE("180 days of delay fit beside a lease that ends 30 days later or earlier") {
  const int64_t day = int64_t{86400} * kSecond;
  for (int64_t deadline : {kNow - 30 * day, kNow, kNow + 30 * day}) {
    int64_t due = kNow + 180 * day;
    int64_t got = unpack_due(pack_due(due, deadline), deadline);
    CHECK(got >= due);
    CHECK(got < due + kDueUnit);
  }
}

TEST_CASE("what does not fit is kept at the limit, not wrapped") {
  CHECK(pack_due(INT64_MAX / 4, 0) == kMaxDueDelta);
  CHECK(pack_due(-(INT64_MAX / 4), 0) == -kMaxDueDelta);
}
