// See siphash.hpp. Written from the paper's description of the algorithm.
#include "siphash.hpp"

namespace baton {
namespace {

constexpr uint64_t rotate_left(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

struct State {
  uint64_t v0, v1, v2, v3;

  void round() noexcept {
    v0 += v1;
    v2 += v3;
    v1 = rotate_left(v1, 13) ^ v0;
    v3 = rotate_left(v3, 16) ^ v2;
    v0 = rotate_left(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = rotate_left(v1, 17) ^ v2;
    v3 = rotate_left(v3, 21) ^ v0;
    v2 = rotate_left(v2, 32);
  }

  void absorb(uint64_t word) noexcept {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

uint64_t load_le(const uint8_t* p, size_t n) noexcept {
  uint64_t w = 0;
  for (size_t i = 0; i < n; i++) w |= static_cast<uint64_t>(p[i]) << (8 * i);
  return w;
}

}  // namespace

uint64_t siphash24(const SipKey& key, const uint8_t* data, size_t length) noexcept {
  State s{key.k0 ^ 0x736f6d6570736575ULL, key.k1 ^ 0x646f72616e646f6dULL, key.k0 ^ 0x6c7967656e657261ULL,
          key.k1 ^ 0x7465646279746573ULL};
  size_t whole = length / 8;
  for (size_t i = 0; i < whole; i++) s.absorb(load_le(data + 8 * i, 8));
  s.absorb(load_le(data + 8 * whole, length % 8) | (static_cast<uint64_t>(length & 0xff) << 56));
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; i++) s.round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace baton
