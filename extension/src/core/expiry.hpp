// What becomes of a message that expires (its row has expires_at), judged by its slot. A claim that lives is never ended by
// it, and a settlement in progress is neither reset nor worked around: such a slot is looked at again.
#pragma once

#include "slot.hpp"

namespace baton {

enum class ExpiryStep : uint8_t {
  kForget,  // settled, or not ours to settle
  kWait,    // looked at again at *again_at
  kExpire,  // nobody holds it, and its time is over
};

// slot: with resolve_slot applied; status: of its xid if it still has one. recheck: how long until a slot that others are
// busy with is looked at again at the latest.
inline ExpiryStep expiry_step(const Slot& s, XidStatus status, int64_t expires_at, int64_t now, int64_t recheck, int64_t* again_at) {
  switch (slot_phase(s, status, now)) {
    case SlotPhase::kNothing:
    case SlotPhase::kForeign:
      return ExpiryStep::kForget;
    default:
      break;
  }
  *again_at = expires_at;
  if (now < expires_at) return ExpiryStep::kWait;
  switch (slot_phase(s, status, now)) {
    case SlotPhase::kDue:
    case SlotPhase::kLater:
    case SlotPhase::kLapsed:
      return ExpiryStep::kExpire;
    case SlotPhase::kHeld:
      // Its lease ends then; released before, it is found at the next look.
      *again_at = s.deadline < now + recheck ? s.deadline : now + recheck;
      return ExpiryStep::kWait;
    default:
      *again_at = now + recheck;
      return ExpiryStep::kWait;
  }
}

// The end of a lease that must not outlive the message.
constexpr int64_t lease_until_expiry(int64_t lease, int64_t now, int64_t expires_at) {
  return expires_at - now < lease ? expires_at - now : lease;
}

}  // namespace baton
