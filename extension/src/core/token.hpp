// Tokens: signed proof of one claim. Text form: "b1" and the fields in base64url, 86 characters in all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "siphash.hpp"

namespace baton {

struct Token {
  uint32_t database;     // pg_database.oid
  uint32_t queue;        // queue id
  uint32_t incarnation;  // of the queue
  uint16_t segment;      // number in the queue's ring
  uint64_t epoch;        // of the segment's map
  uint32_t block;        // place of the slot
  uint8_t index;
  int64_t id;            // message id
  uint32_t generation;
  uint64_t nonce;
  int64_t claimed_at;    // microseconds since 2000
};

constexpr size_t kTokenBytes = 4 + 4 + 4 + 2 + 8 + 4 + 1 + 8 + 4 + 8 + 8 + 8;  // 63, the last 8 are the tag
constexpr size_t kTokenTextLength = 2 + kTokenBytes / 3 * 4;                   // 86
static_assert(kTokenBytes % 3 == 0, "no padding in the text form");

// Writes exactly kTokenTextLength characters, no terminator.
void format_token(const Token& token, const SipKey& key, char* out) noexcept;

// False for anything that is not the text form of a token (length, prefix, alphabet). Does not look at the tag.
bool token_is_well_formed(const char* text, size_t length) noexcept;

// False if the text is not well formed or its tag does not match the key. Which of the two is not told.
bool parse_token(const char* text, size_t length, const SipKey& key, Token* out) noexcept;

}  // namespace baton
