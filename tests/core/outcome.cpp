// The table of outcome words: one entry each, words without doubles, SQLSTATEs of the classes that were promised.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "core/outcome.hpp"

using namespace baton;

TEST_CASE("words and SQLSTATEs") {
  const std::map<std::string, std::string> expected = {
      {"acked", "00000"},           {"released", "00000"},         {"scheduled", "00000"},
      {"quarantined", "00000"},     {"handed_back", "00000"},      {"extended", "00000"},
      {"started", "00000"},         {"stale_generation", "QB001"}, {"lease_expired", "QB002"},
      {"already_settled", "QB003"}, {"invalid_token", "QB004"},    {"stale_epoch", "QB008"},
      {"settling", "55P03"},        {"forbidden", "42501"},        {"lifetime_exceeded", "53400"},
      {"expired", "00000"},         {"expiry_exceeded", "53400"},
      {"revoked", "00000"},         {"not_started", "55000"},      {"already_started", "55000"},
      {"not_claimed", "55000"},     {"not_found", "42704"},
  };
  std::map<std::string, std::string> found;
  for (const OutcomeEntry& e : kOutcomes) {
    CHECK(std::strlen(e.sqlstate) == 5);
    CHECK(std::strlen(e.meaning) > 10);
    CHECK(found.emplace(e.word, e.sqlstate).second);
  }
  CHECK(found == expected);
}

TEST_CASE("success is what has SQLSTATE 00000") {
  for (int i = 0; i < static_cast<int>(Outcome::kCount); i++) {
    auto o = static_cast<Outcome>(i);
    CAPTURE(outcome_entry(o).word);
    CHECK(succeeded(o) == (std::strcmp(outcome_entry(o).sqlstate, "00000") == 0));
  }
}

TEST_CASE("an outcome finds its own entry") {
  CHECK(std::string(outcome_entry(Outcome::kAcked).word) == "acked");
  CHECK(std::string(outcome_entry(Outcome::kStaleGeneration).word) == "stale_generation");
  CHECK(std::string(outcome_entry(Outcome::kStaleEpoch).word) == "stale_epoch");
  CHECK(std::string(outcome_entry(Outcome::kLifetimeExceeded).word) == "lifetime_exceeded");
}
