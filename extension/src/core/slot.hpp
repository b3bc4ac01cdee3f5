// The slot: delivery state of one message, 64 bytes on a map page. This is the on-disk format; a change needs a new
// kMapFormatVersion (leasemap/page.hpp). Everything here is plain arithmetic, so that the rules of the fence can be
// tested without a server.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backoff.hpp"

namespace baton {

// One state with one transaction id (xid) whose meaning follows the state.
enum class SlotState : uint8_t {
  kEmpty = 0,     // never written
  kInserted = 1,  // xid = inserter; ready as soon as that has committed
  kReady = 2,     // offered; deadline = due time (0: at once); kind says how it came back
  kClaimed = 3,   // held under a lease until deadline
  kSettling = 4,  // xid = settling transaction, kind = what it does; claim fields still hold
  kGone = 5,      // settled for good; kind says how, nonce still answers for its token
};

// What a settlement does, or how a slot came to be READY or GONE.
enum class SettleKind : uint8_t {
  kNone = 0,
  kAcked = 1,
  kReleased = 2,     // counts a failure
  kReturned = 3,     // released with failed => false
  kQuarantined = 4,
  kMoved = 5,
  kPurged = 6,       // purged, cancelled, or its row deleted by plain SQL
  kExpired = 7,      // the message's own expiry passed
  kAborted = 8,      // its enqueue was rolled back
  kHandedBack = 9,   // hand_back: READY only
  kVoid = 10,        // its claim was rolled back: READY only
  kFenced = 11,      // fence(queue) ended the claim: READY only
  kDeferred = 12,    // released with a long delay: the message went to a due-time bucket
  kRevoked = 13,     // revoke ended the claim: READY only
  kDisconnected = 14,  // the session that the claim was bound to has ended: READY only
};

constexpr SettleKind kLastSettleKind = SettleKind::kDisconnected;
constexpr uint8_t kKindMask = 0x1f;
constexpr uint8_t kExpiresFlag = 0x20;  // its row has expires_at
constexpr uint8_t kSessionFlag = 0x40;  // CLAIMED, SETTLING: the claim is bound to the session that made it
constexpr uint8_t kForeignFlag = 0x80;  // arrived by logical replication; not handed out until activate()

struct Slot {
  uint8_t tid[6];        // ItemPointerData of the row
  uint8_t state;         // SlotState
  uint8_t kind;          // SettleKind | flags
  uint32_t xid_low;      // 48-bit full transaction id; next to the state, so that an ack logs 8 bytes in one piece
  uint16_t xid_high;
  uint16_t failures;
  int64_t id;            // message id; must equal the row's
  uint32_t key_hash;     // of the routing key; 0 without one
  uint32_t generation;   // claims so far; never reset
  uint64_t nonce;        // of the latest claim; 0 before the first
  int64_t deadline;      // CLAIMED, SETTLING: end of lease; READY, INSERTED: due time, 0 = at once (microseconds since 2000)
  uint32_t worker;       // worker number (leasemap/worker_names.hpp)
  uint32_t held_ms;      // deadline - time of claim; with it the claim's age and the lifetime cap are known
  uint32_t started_ms;   // start of execution: milliseconds after the claim, plus 1; 0 = not started
  int32_t due_delta;     // SETTLING kReleased/kReturned: due time, in units of kDueUnit relative to deadline;
                         // CLAIMED and not started, if its queue has start_within: the lease that start gives, in kDueUnit
};
static_assert(sizeof(Slot) == 64 && std::is_trivially_copyable_v<Slot>);

constexpr uint32_t kMaxGeneration = 0xfffffff0;
constexpr uint16_t kMaxFailures = 65000;
constexpr int64_t kDueUnit = 10000;  // microseconds; due times are rounded up to it, so never early
constexpr int64_t kMaxDueDelta = 0x7ffffff0LL;

constexpr uint64_t slot_xid(const Slot& s) { return (static_cast<uint64_t>(s.xid_high) << 32) | s.xid_low; }
inline void set_slot_xid(Slot& s, uint64_t full_xid) {
  s.xid_low = static_cast<uint32_t>(full_xid);
  s.xid_high = static_cast<uint16_t>(full_xid >> 32);
}
constexpr SlotState slot_state(const Slot& s) { return static_cast<SlotState>(s.state); }
constexpr SettleKind slot_kind(const Slot& s) { return static_cast<SettleKind>(s.kind & kKindMask); }
constexpr bool slot_expires(const Slot& s) { return (s.kind & kExpiresFlag) != 0; }
constexpr bool slot_is_foreign(const Slot& s) { return (s.kind & kForeignFlag) != 0; }
constexpr bool slot_is_session_bound(const Slot& s) { return (s.kind & kSessionFlag) != 0; }
inline void set_slot_kind(Slot& s, SettleKind k) {
  s.kind = static_cast<uint8_t>((s.kind & ~kKindMask) | static_cast<uint8_t>(k));
}
constexpr int64_t slot_claimed_at(const Slot& s) { return s.deadline - static_cast<int64_t>(s.held_ms) * 1000; }
// A claim whose lease is short until it is started.
constexpr bool waits_for_start(const Slot& s) {
  return slot_state(s) == SlotState::kClaimed && s.started_ms == 0 && s.due_delta > 0;
}
constexpr int64_t lease_at_start(const Slot& s) { return static_cast<int64_t>(s.due_delta) * kDueUnit; }
constexpr bool releases(SettleKind k) { return k == SettleKind::kReleased || k == SettleKind::kReturned; }

// Due time of a settling release, packed beside the deadline so that a rollback finds the claim unchanged.
constexpr int32_t pack_due(int64_t due, int64_t deadline) {
  int64_t d = due - deadline;
  int64_t q = d / kDueUnit;
  if (q * kDueUnit < d) q++;  // round up: never early
  if (q > kMaxDueDelta) q = kMaxDueDelta;
  if (q < -kMaxDueDelta) q = -kMaxDueDelta;
  return static_cast<int32_t>(q);
}
constexpr int64_t unpack_due(int32_t delta, int64_t deadline) { return deadline + static_cast<int64_t>(delta) * kDueUnit; }

// Status of a slot's transaction, asked "in progress?" first and "committed?" second.
enum class XidStatus : uint8_t { kMine, kInProgress, kCommitted, kAborted, kTooOld };

// What a slot says once its transaction's outcome is known.
enum class SlotPhase : uint8_t {
  kNothing,    // empty, gone, or settled by a committed transaction
  kPending,    // its enqueue is still open (or the caller's own)
  kForeign,    // waits for activate()
  kDue,        // ready and due
  kLater,      // ready, not yet due
  kHeld,       // under a live lease
  kLapsed,     // its lease is over: claimable, counts a failure first
  kSettling,   // a settlement is in progress
  kAskRow,     // its transaction is older than the commit log: the row decides
};

// Turns a slot whose settlement or enqueue has a known outcome into the state it is really in (in memory).
// Returns true if the slot changed. kMine, kInProgress and kTooOld leave it alone.
inline bool resolve_slot(Slot& s, XidStatus status) {
  if (slot_state(s) == SlotState::kInserted) {
    if (status == XidStatus::kCommitted) {
      // A claim that was moved here goes on.
      s.state = static_cast<uint8_t>(s.held_ms != 0 ? SlotState::kClaimed : SlotState::kReady);
      return true;
    }
    if (status == XidStatus::kAborted) {
      s.state = static_cast<uint8_t>(SlotState::kGone);
      set_slot_kind(s, SettleKind::kAborted);
      return true;
    }
    return false;
  }
  if (slot_state(s) != SlotState::kSettling) return false;
  if (status == XidStatus::kAborted) {
    // Without a lease it was no claim that was being settled, but a ready message that was to be set aside.
    s.state = static_cast<uint8_t>(s.held_ms != 0 ? SlotState::kClaimed : SlotState::kReady);
    // A release has written its due time over what start would give: the lease stays as it is.
    if (releases(slot_kind(s)) || s.held_ms == 0) s.due_delta = 0;
    set_slot_kind(s, SettleKind::kNone);
    return true;
  }
  if (status != XidStatus::kCommitted) return false;
  if (releases(slot_kind(s))) {
    s.state = static_cast<uint8_t>(SlotState::kReady);
    s.deadline = unpack_due(s.due_delta, s.deadline);
    if (slot_kind(s) == SettleKind::kReleased && s.failures < kMaxFailures) s.failures++;
    s.kind = static_cast<uint8_t>(s.kind & ~kSessionFlag);
    s.due_delta = 0;
    s.held_ms = 0;
    s.started_ms = 0;
  } else {
    s.state = static_cast<uint8_t>(SlotState::kGone);
  }
  return true;
}

// A claim that was bound to a session of an earlier life of this server belongs to nobody: no session has lived through
// the restart. Its lease ended when this life began. began: when shared memory was made; 0 in recovery, where the
// sessions are those of another server. After a promotion it is older than the claims that came by replication, and they
// go on until their leases end. Every reader of slots applies this before it judges, or two of them would disagree.
inline void end_orphan(Slot& s, int64_t began) {
  if (!slot_is_session_bound(s) || slot_state(s) != SlotState::kClaimed) return;
  int64_t claimed_at = slot_claimed_at(s);
  if (claimed_at >= began || s.deadline <= began) return;
  int64_t held_ms = (began - claimed_at + 999) / 1000;
  s.held_ms = held_ms < UINT32_MAX ? static_cast<uint32_t>(held_ms) : UINT32_MAX;
  s.deadline = began;
}

// Phase of a slot that resolve_slot has been applied to; status is that of its xid where the state still has one.
inline SlotPhase slot_phase(const Slot& s, XidStatus status, int64_t now) {
  switch (slot_state(s)) {
    case SlotState::kInserted:
      return status == XidStatus::kTooOld ? SlotPhase::kAskRow : SlotPhase::kPending;
    case SlotState::kSettling:
      return status == XidStatus::kTooOld ? SlotPhase::kAskRow : SlotPhase::kSettling;
    case SlotState::kReady:
      if (slot_is_foreign(s)) return SlotPhase::kForeign;
      return s.deadline <= now ? SlotPhase::kDue : SlotPhase::kLater;
    case SlotState::kClaimed:
      return now < s.deadline ? SlotPhase::kHeld : SlotPhase::kLapsed;
    default:
      return SlotPhase::kNothing;
  }
}

// Of a lapsed claim: when others may have the message.
constexpr int64_t slot_eligible_at(const Slot& s, int64_t spread_us) {
  return lapse_eligible_at(s.deadline, static_cast<int64_t>(s.held_ms) * 1000, spread_us, s.id);
}

// Does the slot's state carry a transaction whose outcome matters?
constexpr bool slot_has_open_xid(const Slot& s) {
  return slot_state(s) == SlotState::kInserted || slot_state(s) == SlotState::kSettling;
}

// A message that nobody has finished with: what keeps a segment from being reclaimed.
constexpr bool slot_is_unsettled(const Slot& s) {
  return slot_state(s) != SlotState::kEmpty && slot_state(s) != SlotState::kGone;
}

// Turns a claimable slot (READY and due, or CLAIMED past its deadline) into a claim. The expired claim's failure is
// counted first. Caller holds the page lock and has obtained nonce before it.
// start_within_us: the lease ends that soon, and start gives it its full length; 0: no bound.
inline void claim_slot(Slot& s, uint64_t nonce, uint32_t worker, int64_t now, int64_t lease_us, int64_t start_within_us = 0,
                       bool session_bound = false) {
  if (slot_state(s) == SlotState::kClaimed && s.failures < kMaxFailures) s.failures++;
  s.state = static_cast<uint8_t>(SlotState::kClaimed);
  set_slot_kind(s, SettleKind::kNone);
  s.kind = static_cast<uint8_t>((s.kind & ~kSessionFlag) | (session_bound ? kSessionFlag : 0));
  s.generation++;
  s.nonce = nonce;
  s.worker = worker;
  s.started_ms = 0;
  s.due_delta = 0;
  if (start_within_us > 0) {
    s.due_delta = pack_due(lease_us, 0);
    if (start_within_us < lease_us) lease_us = start_within_us;
  }
  s.deadline = now + lease_us;
  s.held_ms = static_cast<uint32_t>((lease_us + 999) / 1000);
}

// A new deadline, never an earlier one. claimed_at: as exact as the caller knows it.
inline void lengthen_slot(Slot& s, int64_t deadline, int64_t claimed_at) {
  if (deadline <= s.deadline) return;
  s.held_ms = static_cast<uint32_t>((deadline - claimed_at + 999) / 1000);
  s.deadline = deadline;
}

// Start of execution. A lease that was short until now gets its length, counted from the start, but ends at latest (the
// total lifetime, the message's expiry).
inline void start_slot(Slot& s, int64_t now, int64_t claimed_at, int64_t latest) {
  bool bounded = waits_for_start(s);
  int64_t lease_us = lease_at_start(s);
  if (s.started_ms == 0) s.started_ms = static_cast<uint32_t>((now - slot_claimed_at(s)) / 1000 + 1);
  if (!bounded) return;
  s.due_delta = 0;
  lengthen_slot(s, now + lease_us < latest ? now + lease_us : latest, claimed_at);
}

// Back to READY without a transaction (hand_back, void, fence).
inline void ready_slot(Slot& s, SettleKind how, int64_t due, bool failed) {
  s.state = static_cast<uint8_t>(SlotState::kReady);
  set_slot_kind(s, how);
  s.kind = static_cast<uint8_t>(s.kind & ~kSessionFlag);
  s.deadline = due;
  s.held_ms = 0;
  s.started_ms = 0;
  s.due_delta = 0;
  if (failed && s.failures < kMaxFailures) s.failures++;
}

// Ends a claim against its holder: ready again at due, or, when the failure is the last one, lapsed. That failure and the
// quarantine are one transaction (that of the claim or the worker that sets the message aside), so it is not counted here.
inline void take_away(Slot& s, SettleKind how, int64_t now, int64_t due, bool failed, int max_attempts) {
  if (failed && s.failures + 1 >= max_attempts) {
    if (s.deadline <= now) return;
    int64_t held_ms = (now - slot_claimed_at(s)) / 1000;
    s.held_ms = held_ms > 1 ? static_cast<uint32_t>(held_ms) : 1;
    s.deadline = now;
    return;
  }
  ready_slot(s, how, due, failed);
}

}  // namespace baton
