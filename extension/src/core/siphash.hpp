// SipHash-2-4 (Aumasson and Bernstein, 2012): the keyed tag of a token. It only lets forgeries die before they touch a
// page; what decides is the slot's nonce.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

struct SipKey {
  uint64_t k0;
  uint64_t k1;
};

uint64_t siphash24(const SipKey& key, const uint8_t* data, size_t length) noexcept;

}  // namespace baton
