// See token.hpp.
#include "token.hpp"

#include <cstring>

namespace baton {
namespace {

constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr size_t kTagBytes = 8;
constexpr size_t kSignedBytes = kTokenBytes - kTagBytes;

struct Decoding {
  int8_t value[256];
};

constexpr Decoding make_decoding() {
  Decoding d{};
  for (int i = 0; i < 256; i++) d.value[i] = -1;
  for (int i = 0; i < 64; i++) d.value[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  return d;
}

constexpr Decoding kDecoding = make_decoding();

// Little-endian on every machine, so that a standby of another architecture (or a log reader) sees the same bytes.
template <typename T>
uint8_t* put(uint8_t* p, T value) noexcept {
  auto v = static_cast<uint64_t>(value);
  for (size_t i = 0; i < sizeof(T); i++) p[i] = static_cast<uint8_t>(v >> (8 * i));
  return p + sizeof(T);
}

template <typename T>
const uint8_t* get(const uint8_t* p, T* value) noexcept {
  uint64_t v = 0;
  for (size_t i = 0; i < sizeof(T); i++) v |= static_cast<uint64_t>(p[i]) << (8 * i);
  *value = static_cast<T>(v);
  return p + sizeof(T);
}

}  // namespace

void format_token(const Token& t, const SipKey& key, char* out) noexcept {
  uint8_t raw[kTokenBytes];
  uint8_t* p = raw;
  p = put(p, t.database);
  p = put(p, t.queue);
  p = put(p, t.incarnation);
  p = put(p, t.segment);
  p = put(p, t.epoch);
  p = put(p, t.block);
  p = put(p, t.index);
  p = put(p, t.id);
  p = put(p, t.generation);
  p = put(p, t.nonce);
  p = put(p, t.claimed_at);
  put(p, siphash24(key, raw, kSignedBytes));

  out[0] = 'b';
  out[1] = '1';
  out += 2;
  for (size_t i = 0; i < kTokenBytes; i += 3) {
    uint32_t w = (uint32_t{raw[i]} << 16) | (uint32_t{raw[i + 1]} << 8) | raw[i + 2];
    *out++ = kAlphabet[w >> 18];
    *out++ = kAlphabet[(w >> 12) & 63];
    *out++ = kAlphabet[(w >> 6) & 63];
    *out++ = kAlphabet[w & 63];
  }
}

bool token_is_well_formed(const char* text, size_t length) noexcept {
  if (length != kTokenTextLength || text[0] != 'b' || text[1] != '1') return false;
  for (size_t i = 2; i < length; i++)
    if (kDecoding.value[static_cast<uint8_t>(text[i])] < 0) return false;
  return true;
}

bool parse_token(const char* text, size_t length, const SipKey& key, Token* t) noexcept {
  if (!token_is_well_formed(text, length)) return false;
  uint8_t raw[kTokenBytes];
  text += 2;
  for (size_t i = 0; i < kTokenBytes; i += 3, text += 4) {
    uint32_t w = 0;
    for (int j = 0; j < 4; j++) w = (w << 6) | static_cast<uint32_t>(kDecoding.value[static_cast<uint8_t>(text[j])]);
    raw[i] = static_cast<uint8_t>(w >> 16);
    raw[i + 1] = static_cast<uint8_t>(w >> 8);
    raw[i + 2] = static_cast<uint8_t>(w);
  }
  const uint8_t* p = raw;
  p = get(p, &t->database);
  p = get(p, &t->queue);
  p = get(p, &t->incarnation);
  p = get(p, &t->segment);
  p = get(p, &t->epoch);
  p = get(p, &t->block);
  p = get(p, &t->index);
  p = get(p, &t->id);
  p = get(p, &t->generation);
  p = get(p, &t->nonce);
  p = get(p, &t->claimed_at);
  uint64_t tag;
  get(p, &tag);
  return tag == siphash24(key, raw, kSignedBytes);
}

}  // namespace baton
