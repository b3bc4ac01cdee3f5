// Backoff and lane packing. The packing is part of the on-disk format: its numbers are pinned.
#include <doctest/doctest.h>

#include <cstdint>

#include "core/backoff.hpp"
#include "core/lane.hpp"

using namespace baton;

TEST_CASE("backoff doubles with every failure after the first, up to the cap") {
  CHECK(backoff_us(1000, 60000, 1) == 1000);
  CHECK(backoff_us(1000, 60000, 2) == 2000);
  CHECK(backoff_us(1000, 60000, 3) == 4000);
  CHECK(backoff_us(1000, 60000, 6) == 32000);
  CHECK(backoff_us(1000, 60000, 7) == 60000);
  CHECK(backoff_us(1000, 60000, 8) == 60000);
  CHECK(backoff_us(1000, 60000, 65000) == 60000);
}

TEST_CASE("backoff at its edges") {
  CHECK(backoff_us(0, 60000, 5) == 0);
  CHECK(backoff_us(-1, 60000, 5) == 0);
  CHECK(backoff_us(1000, 60000, 0) == 0);
  CHECK(backoff_us(1000, 60000, -3) == 0);
  CHECK(backoff_us(60000, 60000, 1) == 60000);
  CHECK(backoff_us(60000, 60000, 2) == 60000);
  CHECK(backoff_us(90000, 60000, 1) == 60000);
  CHECK(backoff_us(30000, 60000, 2) == 60000);
  CHECK(backoff_us(30001, 60000, 2) == 60000);
  CHECK(backoff_us(1000, 0, 4) == 0);
}

TEST_CASE("spread: never less than the backoff, at most a tenth more, always the same, and different for neighbours") {
  for (int64_t base : {int64_t{1}, int64_t{9}, int64_t{10}, int64_t{1000000}, int64_t{3600000000}, INT64_MAX / 2}) {
    for (int failures = 1; failures < 12; failures++) {
      for (int64_t id = 1; id < 200; id++) {
        int64_t wait = backoff_us(base, INT64_MAX / 2, failures);
        int64_t spread = spread_backoff_us(base, INT64_MAX / 2, failures, id);
        CHECK(spread >= wait);
        CHECK(spread <= wait + wait / 10);
        CHECK(spread == spread_backoff_us(base, INT64_MAX / 2, failures, id));
      }
    }
  }
  CHECK(spread_backoff_us(0, 60, 3, 1) == 0);
  // Evenly: each tenth of the spread gets its share of messages that failed together.
  int share[10] = {};
  for (int64_t id = 1000; id < 11000; id++) {
    int64_t more = spread_backoff_us(10000000, 60000000, 1, id) - 10000000;
    share[more / 100000]++;
  }
  for (int n : share) {
    CHECK(n > 900);
    CHECK(n < 1100);
  }
}

TEST_CASE("what lapses together comes back spread: never early, within the spread and a tenth of the lease, neighbours together") {
  const int64_t deadline = 800000000LL * 1000000;
  const int64_t second = 1000000;
  int share[8] = {};
  for (int64_t id = 1; id <= 32000; id++) {
    int64_t at = lapse_eligible_at(deadline, 30 * second, second, id);
    CHECK(at >= deadline);
    CHECK(at < deadline + second);
    CHECK((at - deadline) % (second / 8) == 0);
    share[(at - deadline) / (second / 8)]++;
    CHECK(at == lapse_eligible_at(deadline, 30 * second, second, id / 32 * 32));
    CHECK(lapse_eligible_at(deadline, second, second, id) < deadline + second / 10);
    CHECK(lapse_eligible_at(deadline, 30 * second, 0, id) == deadline);
    CHECK(lapse_eligible_at(deadline, 0, second, id) == deadline);
    CHECK(lapse_eligible_at(deadline, INT64_MAX / 2, INT64_MAX / 2, 1) >= deadline);
  }
  for (int n : share) {
    CHECK(n > 3000);
    CHECK(n < 5000);
  }
}

TEST_CASE("backoff never overflows and never falls") {
  for (int64_t base : {int64_t{1}, int64_t{1000000}, INT64_MAX / 2, INT64_MAX / 2 + 1, INT64_MAX}) {
    int64_t before = 0;
    for (int failures = 1; failures < 200; failures++) {
      int64_t wait = backoff_us(base, INT64_MAX, failures);
      CHECK(wait >= before);
      CHECK(wait >= base);
      before = wait;
    }
    CHECK(before == INT64_MAX);
  }
}

TEST_CASE("lane numbers on disk") {
  CHECK(kDefaultLane == 20);
  CHECK(pack_lane(0, 5, LaneKind::kNew) == 20);
  CHECK(pack_lane(0, 5, LaneKind::kRetry) == 21);
  CHECK(pack_lane(0, 5, LaneKind::kBackfill) == 22);
  CHECK(pack_lane(1, 10, LaneKind::kNew) == 256 + 40);
  CHECK(pack_lane(0xffffff, 63, LaneKind::kBackfill) == 0xfffffffeU);
}

TEST_CASE("a lane is taken apart as it was put together") {
  for (uint32_t partition : {0U, 1U, 255U, 65535U, 0xffffffU})
    for (uint32_t band = 0; band < 64; band++)
      for (LaneKind kind : {LaneKind::kNew, LaneKind::kRetry, LaneKind::kBackfill}) {
        uint32_t lane = pack_lane(partition, band, kind);
        CHECK(lane_partition(lane) == partition);
        CHECK(lane_band(lane) == band);
        CHECK(lane_kind(lane) == kind);
      }
}
