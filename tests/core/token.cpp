// Tokens: the text form is a wire format (clients keep tokens, standbys and dumps of logs carry them), so it is pinned
// by a known answer that was made by another implementation. What is not the exact text of a token is refused.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>

#include "core/token.hpp"

using namespace baton;

namespace {

const SipKey kKey{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

Token sample() {
  Token t;
  t.database = 16384;
  t.queue = 7;
  t.incarnation = 0x01234567;
  t.segment = 2;
  t.epoch = 0x1122334455667788ULL;
  t.block = 9;
  t.index = 126;
  t.id = -2;
  t.generation = 0xfedcba98U;
  t.nonce = 0x8877665544332211ULL;
  t.claimed_at = 0x0102030405060708LL;
  return t;
}

std::string text_of(const Token& t, const SipKey& key = kKey) {
  std::string s(kTokenTextLength, '?');
  format_token(t, key, &s[0]);
  return s;
}

bool parses(const std::string& s, const SipKey& key = kKey) {
  Token out;
  return parse_token(s.data(), s.size(), key, &out);
}

bool same(const Token& a, const Token& b) {
  return a.database == b.database && a.queue == b.queue && a.incarnation == b.incarnation && a.segment == b.segment &&
         a.epoch == b.epoch && a.block == b.block && a.index == b.index && a.id == b.id &&
         a.generation == b.generation && a.nonce == b.nonce && a.claimed_at == b.claimed_at;
}

int value_of(char c) { return static_cast<int>(std::strchr(kAlphabet, c) - kAlphabet); }

// Flips one bit of what the text stands for.
std::string with_flipped_bit(std::string s, size_t bit) {
  char& c = s[2 + bit / 6];
  c = kAlphabet[value_of(c) ^ (32 >> (bit % 6))];
  return s;
}

}  // namespace

TEST_CASE("known answer") {
  CHECK(text_of(sample()) == "b1AEAAAAcAAABnRSMBAgCId2ZVRDMiEQkAAAB-_v________-Yutz-ESIzRFVmd4gIBwYFBAMCAQtglajmEJlk");
  CHECK(kTokenTextLength == 86);
}

TEST_CASE("what was written is read") {
  Token out;
  std::string s = text_of(sample());
  REQUIRE(parse_token(s.data(), s.size(), kKey, &out));
  CHECK(same(out, sample()));

  std::mt19937_64 random(20240229);
  for (int i = 0; i < 2000; i++) {
    Token t;
    t.database = static_cast<uint32_t>(random());
    t.queue = static_cast<uint32_t>(random());
    t.incarnation = static_cast<uint32_t>(random());
    t.segment = static_cast<uint16_t>(random());
    t.epoch = random();
    t.block = static_cast<uint32_t>(random());
    t.index = static_cast<uint8_t>(random());
    t.id = static_cast<int64_t>(random());
    t.generation = static_cast<uint32_t>(random());
    t.nonce = random();
    t.claimed_at = static_cast<int64_t>(random());
    SipKey key{random(), random()};
    s = text_of(t, key);
    CHECK(token_is_well_formed(s.data(), s.size()));
    REQUIRE(parse_token(s.data(), s.size(), key, &out));
    CHECK(same(out, t));
  }
}

TEST_CASE("extreme values") {
  Token t;
  std::memset(&t, 0xff, sizeof(t));
  t.id = INT64_MIN;
  t.claimed_at = INT64_MAX;
  Token out;
  std::string s = text_of(t);
  REQUIRE(parse_token(s.data(), s.size(), kKey, &out));
  CHECK(same(out, t));
  Token zero{};
  s = text_of(zero);
  REQUIRE(parse_token(s.data(), s.size(), kKey, &out));
  CHECK(same(out, zero));
}

TEST_CASE("every field changes the text") {
  std::set<std::string> texts;
  texts.insert(text_of(sample()));
  auto add = [&](auto change) {
    Token t = sample();
    change(t);
    CHECK(texts.insert(text_of(t)).second);
  };
  add([](Token& t) { t.database++; });
  add([](Token& t) { t.queue++; });
  add([](Token& t) { t.incarnation++; });
  add([](Token& t) { t.segment++; });
  add([](Token& t) { t.epoch++; });
  add([](Token& t) { t.block++; });
  add([](Token& t) { t.index++; });
  add([](Token& t) { t.id++; });
  add([](Token& t) { t.generation++; });
  add([](Token& t) { t.nonce++; });
  add([](Token& t) { t.claimed_at++; });
}

TEST_CASE("every flipped bit is refused") {
  const std::string right = text_of(sample());
  REQUIRE(parses(right));
  for (size_t bit = 0; bit < kTokenBytes * 8; bit++) {
    CAPTURE(bit);
    std::string wrong = with_flipped_bit(right, bit);
    CHECK(wrong != right);
    CHECK(token_is_well_formed(wrong.data(), wrong.size()));
    CHECK_FALSE(parses(wrong));
  }
}

TEST_CASE("every byte in every place: only the right one is accepted") {
  const std::string right = text_of(sample());
  for (size_t place = 0; place < right.size(); place++)
    for (int byte = 0; byte < 256; byte++) {
      std::string s = right;
      s[place] = static_cast<char>(byte);
      if (parses(s) != (s == right)) {
        CAPTURE(place);
        CAPTURE(byte);
        CHECK(parses(s) == (s == right));
      }
    }
}

TEST_CASE("wrong length, prefix, alphabet") {
  const std::string right = text_of(sample());
  for (size_t n = 0; n < right.size(); n++) CHECK_FALSE(parses(right.substr(0, n)));
  CHECK_FALSE(parses(right + "A"));
  CHECK_FALSE(parses(" " + right));
  CHECK_FALSE(parses(right + " "));
  CHECK_FALSE(parses(right + right));
  CHECK_FALSE(parses("b2" + right.substr(2)));
  CHECK_FALSE(parses("B1" + right.substr(2)));
  CHECK_FALSE(parses(""));
  CHECK_FALSE(token_is_well_formed(nullptr, 0));
  // ordinary base64 is another alphabet
  std::string plus = right;
  plus[10] = '+';
  CHECK_FALSE(token_is_well_formed(plus.data(), plus.size()));
  plus[10] = '/';
  CHECK_FALSE(token_is_well_formed(plus.data(), plus.size()));
  plus[10] = '=';
  CHECK_FALSE(token_is_well_formed(plus.data(), plus.size()));
  plus[10] = '\0';
  CHECK_FALSE(token_is_well_formed(plus.data(), plus.size()));
}

TEST_CASE("another key refuses") {
  const std::string right = text_of(sample());
  for (int bit = 0; bit < 64; bit++) {
    CHECK_FALSE(parses(right, SipKey{kKey.k0 ^ (1ULL << bit), kKey.k1}));
    CHECK_FALSE(parses(right, SipKey{kKey.k0, kKey.k1 ^ (1ULL << bit)}));
  }
}

TEST_CASE("random text is refused") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; i++) {
    std::string s = "b1";
    while (s.size() < kTokenTextLength) s += kAlphabet[random() % 64];
    CHECK_FALSE(parses(s));
  }
}
