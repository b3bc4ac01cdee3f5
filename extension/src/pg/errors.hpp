// SQLSTATEs of class QB, and the raising of outcomes. Core codes come first; QB only where a caller must branch.
#pragma once

#include "../core/outcome.hpp"
#include "postgres.hpp"

namespace baton {

constexpr int kErrStaleGeneration = MAKE_SQLSTATE('Q', 'B', '0', '0', '1');
constexpr int kErrLeaseExpired = MAKE_SQLSTATE('Q', 'B', '0', '0', '2');
constexpr int kErrAlreadySettled = MAKE_SQLSTATE('Q', 'B', '0', '0', '3');
constexpr int kErrInvalidToken = MAKE_SQLSTATE('Q', 'B', '0', '0', '4');
constexpr int kErrQueueFull = MAKE_SQLSTATE('Q', 'B', '0', '0', '5');
constexpr int kErrQueuePaused = MAKE_SQLSTATE('Q', 'B', '0', '0', '6');
constexpr int kErrDedupConflict = MAKE_SQLSTATE('Q', 'B', '0', '0', '7');
constexpr int kErrStaleEpoch = MAKE_SQLSTATE('Q', 'B', '0', '0', '8');
constexpr int kErrLibraryTooOld = MAKE_SQLSTATE('Q', 'B', '0', '0', '9');

// The SQLSTATE of an outcome, from the one table in core/outcome.hpp.
inline int outcome_sqlstate(Outcome o) {
  const char* s = outcome_entry(o).sqlstate;
  return MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]);
}

[[noreturn]] void raise_bad_argument(const char* field, const char* what);  // 22023

}  // namespace baton
