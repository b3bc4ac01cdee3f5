// What keeps a table: the order of the conditions, and what a full ring may and may not override.
#include <doctest/doctest.h>

#include <cstring>

#include "core/keep.hpp"

using namespace baton;

namespace {

SegmentFacts drained() {
  SegmentFacts f{};
  f.newest_xid = 100;
  f.horizon = 101;
  f.grace_us = 60;
  return f;
}

}  // namespace

TEST_CASE("a drained segment that nobody can see goes") {
  CHECK(keep_segment(drained()) == Keep::kNothing);
  CHECK(horizon_passed(drained()));
}

TEST_CASE("each condition keeps a segment by itself, whether the ring is full or not") {
  for (bool full : {false, true}) {
    SegmentFacts f = drained();
    f.ring_full = full;
    f.drained_us = 1000;
    auto kept = [&](auto change) {
      SegmentFacts g = f;
      change(g);
      return keep_segment(g);
    };
    CHECK(kept([](SegmentFacts&) {}) == Keep::kNothing);
    CHECK(kept([](SegmentFacts& g) { g.newest = true; }) == Keep::kNewest);
    CHECK(kept([](SegmentFacts& g) { g.unsettled = Keep::kUnsettled; }) == Keep::kUnsettled);
    CHECK(kept([](SegmentFacts& g) { g.unsettled = Keep::kClaim; }) == Keep::kClaim);
    CHECK(kept([](SegmentFacts& g) { g.unsettled = Keep::kOpenTransaction; }) == Keep::kOpenTransaction);
    CHECK(kept([](SegmentFacts& g) { g.deadline_ahead = true; }) == Keep::kDeadline);
    CHECK(kept([](SegmentFacts& g) { g.rotation_held = true; }) == Keep::kRotationHeld);
    CHECK(kept([](SegmentFacts& g) { g.too_soon = true; }) == Keep::kInterval);
  }
}

TEST_CASE("the horizon is passed only by what is newer") {
  SegmentFacts f = drained();
  f.horizon = f.newest_xid;
  CHECK(keep_segment(f) == Keep::kHorizon);
  f.horizon++;
  CHECK(keep_segment(f) == Keep::kNothing);
  f.rows_needed = true;
  CHECK(keep_segment(f) == Keep::kHorizon);
}

TEST_CASE("a full ring overrides the horizon after the grace, and nothing else") {
  SegmentFacts f = drained();
  f.horizon = 50;
  f.ring_full = true;
  f.drained_us = f.grace_us - 1;
  CHECK(keep_segment(f) == Keep::kHorizon);
  f.drained_us++;
  CHECK(keep_segment(f) == Keep::kNothing);
  CHECK(!horizon_passed(f));
  f.moved = true;
  CHECK(keep_segment(f) == Keep::kHorizon);
}

TEST_CASE("every condition has a word of its own") {
  for (int i = 0; i < static_cast<int>(Keep::kCount); i++)
    for (int k = 0; k < i; k++) CHECK(std::strcmp(kKeeps[i].word, kKeeps[k].word) != 0);
}
