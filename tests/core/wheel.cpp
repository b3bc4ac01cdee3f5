// Due-time buckets: every due time has one place, and the place leads back to the time.
#include <doctest/doctest.h>

#include "core/wheel.hpp"

using namespace baton;

namespace {

constexpr int64_t kNow = 850000000LL * kWheelSecond;  // about 2026

}  // namespace

TEST_CASE("the level follows from how far ahead a message is due") {
  CHECK(wheel_table(kNow, kNow + kWheelSecond) / kWheelTablesPerLevel == 0);
  CHECK(wheel_table(kNow, kNow + 4 * kWheelHour) / kWheelTablesPerLevel == 0);
  CHECK(wheel_table(kNow, kNow + 4 * kWheelHour + 1) / kWheelTablesPerLevel == 1);
  CHECK(wheel_table(kNow, kNow + 4 * kWheelDay) / kWheelTablesPerLevel == 1);
  CHECK(wheel_table(kNow, kNow + 4 * kWheelDay + 1) / kWheelTablesPerLevel == 2);
  CHECK(wheel_table(kNow, kNow + 180 * kWheelDay) / kWheelTablesPerLevel == 2);
  CHECK(wheel_table(kNow, kNow + 5000 * kWheelDay) / kWheelTablesPerLevel == 2);
}

TEST_CASE("a lane's start and width hold the due time of what is put there") {
  for (int64_t ahead = kWheelSecond; ahead < 200 * kWheelDay; ahead = ahead * 5 / 4 + 777777) {
    int64_t due = kNow + ahead;
    int table = wheel_table(kNow, due);
    uint32_t lane = wheel_lane(table, due);
    int64_t start = wheel_lane_start(table, lane, due);
    CHECK(table >= 0);
    CHECK(table < kWheelTables);
    CHECK(lane >= 1);
    CHECK(lane <= kWheelMostLanes);
    CHECK(start <= due);
    CHECK(due < start + wheel_level(table).lane);
    // An instant before it starts, the lane's latest start is a whole turn back.
    CHECK(wheel_lane_start(table, lane, start - 1) == start - kWheelTablesPerLevel * wheel_level(table).window);
    CHECK(wheel_lane_start(table, lane, start) == start);
  }
}

TEST_CASE("a table's next window does not begin to fill before its last one has passed") {
  for (const WheelLevel& level : kWheelLevels)
    CHECK(level.reach + level.window <= (kWheelTablesPerLevel - 1) * level.window);
}

TEST_CASE("neighbouring windows use neighbouring tables and come round") {
  for (int level = 0; level * kWheelTablesPerLevel < kWheelTables; level++) {
    int64_t window = kWheelLevels[level].window;
    int64_t due = kNow + kWheelLevels[level].reach - window;
    int first = wheel_table(due - kWheelLevels[level].reach, due);
    int next = wheel_table(due + window - kWheelLevels[level].reach, due + window);
    CHECK(first / kWheelTablesPerLevel == level);
    CHECK(next % kWheelTablesPerLevel == (first + 1) % kWheelTablesPerLevel);
    int64_t turn = window * kWheelTablesPerLevel;
    CHECK(wheel_table(due + turn - kWheelLevels[level].reach, due + turn) == first);
    CHECK(wheel_lane(first, due + turn) == wheel_lane(first, due));
  }
}

TEST_CASE("times before the year 2000 have a place as well") {
  CHECK(wheel_lane(0, -1) == 360);
  CHECK(wheel_table(-kWheelHour, -1) == 5);
  CHECK(floor_div(-1, 10) == -1);
  CHECK(floor_div(-10, 10) == -1);
  CHECK(floor_div(10, 10) == 1);
}
