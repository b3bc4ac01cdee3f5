// The fence: may the holder of this token do something to this slot? Decided on the slot under its page lock.
#pragma once

#include "outcome.hpp"
#include "slot.hpp"
#include "token.hpp"

namespace baton {

// slot: as on the page, with resolve_slot and end_orphan applied (in memory). status: of its xid if it still has one. now: the clock,
// read after the lock was taken. Returns kAcked when the token owns the slot: the half-open rule, now < deadline owns.
inline Outcome judge(const Slot& slot, XidStatus status, const Token& token, int64_t now) {
  if (slot.id != token.id || slot_state(slot) == SlotState::kEmpty) return Outcome::kStaleEpoch;
  // The nonce decides, not the generation: after a crash that forgot an unflushed claim the number is used again.
  if (slot.nonce != token.nonce) {
    // Moved away when its claim was over without having been settled by its token (leasemap/move.cpp).
    bool lapsed = slot.nonce == 0 && slot_kind(slot) == SettleKind::kMoved && slot.generation == token.generation;
    return lapsed ? Outcome::kLeaseExpired : Outcome::kStaleGeneration;
  }
  switch (slot_state(slot)) {
    case SlotState::kClaimed:
      return now < slot.deadline ? Outcome::kAcked : Outcome::kLeaseExpired;
    case SlotState::kSettling:
      return status == XidStatus::kMine ? Outcome::kAlreadySettled : Outcome::kSettling;
    case SlotState::kReady:
      switch (slot_kind(slot)) {
        case SettleKind::kReleased:
        case SettleKind::kReturned:
        case SettleKind::kHandedBack:
          return Outcome::kAlreadySettled;
        case SettleKind::kFenced:
        case SettleKind::kRevoked:
          return Outcome::kStaleEpoch;
        default:
          // Rolled back, disconnected; or it was to be moved or set aside since, which was rolled back and has taken with it
          // how the claim had ended. In doubt the answer is not that it had settled.
          return Outcome::kLeaseExpired;
      }
    case SlotState::kGone:
      return Outcome::kAlreadySettled;
    default:
      return Outcome::kStaleEpoch;
  }
}

}  // namespace baton
