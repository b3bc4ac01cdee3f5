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
    CHECK(kept([](SegmentFacts& g) { g.too_small = true; }) == Keep::kSmall);
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

namespace {

RetainedFacts passed() {
  RetainedFacts f{};
  f.passed_xid = 100;
  f.horizon = 101;
  f.grace_us = 60;
  return f;
}

}  // namespace

TEST_CASE("each condition keeps a retained table by itself") {
  auto kept = [](auto change) {
    RetainedFacts f = passed();
    change(f);
    return keep_retained(f);
  };
  CHECK(kept([](RetainedFacts&) {}) == Keep::kNothing);
  CHECK(kept([](RetainedFacts& f) { f.empty = true; }) == Keep::kEmpty);
  for (Keep row : {Keep::kRetention, Keep::kReplayWindow, Keep::kHold, Keep::kOpenTransaction}) CHECK(kept([&](RetainedFacts& f) { f.row = row; }) == row);
  CHECK(kept([](RetainedFacts& f) { f.rotation_held = true; }) == Keep::kRotationHeld);
  CHECK(kept([](RetainedFacts& f) { f.too_soon = true; }) == Keep::kInterval);
  CHECK(kept([](RetainedFacts& f) { f.horizon = f.passed_xid; }) == Keep::kHorizon);
}

TEST_CASE("a snapshot is waited for up to the grace, a row, a hold and the clock for ever") {
  RetainedFacts f = passed();
  f.horizon = 1;
  f.passed_us = f.grace_us - 1;
  CHECK(keep_retained(f) == Keep::kHorizon);
  f.passed_us = f.grace_us;
  CHECK(keep_retained(f) == Keep::kNothing);
  f.passed_us = INT64_MAX;
  f.row = Keep::kHold;
  CHECK(keep_retained(f) == Keep::kHold);
  f.row = Keep::kRetention;
  CHECK(keep_retained(f) == Keep::kRetention);
  f.row = Keep::kNothing;
  f.rotation_held = true;
  CHECK(keep_retained(f) == Keep::kRotationHeld);
}

TEST_CASE("every condition has a word of its own") {
  for (int i = 0; i < static_cast<int>(Keep::kCount); i++)
    for (int k = 0; k < i; k++) CHECK(std::strcmp(kKeepWords[i], kKeepWords[k]) != 0);
}
