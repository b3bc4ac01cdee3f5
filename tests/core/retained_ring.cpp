// Places of retained messages: never in a spare table, none of a window in two tables, and gone in good time.
#include <doctest/doctest.h>

#include <cstdint>

#include "core/retained_ring.hpp"

using namespace baton;

namespace {

const int64_t kNow = 834'000'000LL * kWheelSecond + 123456;
const int64_t kTimes[] = {0, 1, -1, kNow, kNow + kWheelHour - 123456, -kNow};

}  // namespace

TEST_CASE("levels grow, and a reach is four windows") {
  for (int level = 0; level < kRetainedLevelCount; level++) {
    CHECK(kRetainedLevels[level].reach == 4 * kRetainedLevels[level].window);
    if (level > 0) CHECK(kRetainedLevels[level].reach > kRetainedLevels[level - 1].reach);
  }
  CHECK(kRetainedTables == 36);
}

TEST_CASE("a message goes to the shortest level that reaches, at its edges too") {
  for (int64_t now : kTimes)
    for (int level = 0; level < kRetainedLevelCount; level++) {
      CHECK(retained_level(retained_table(now, now + kRetainedLevels[level].reach)) == level);
      if (level + 1 < kRetainedLevelCount) CHECK(retained_level(retained_table(now, now + kRetainedLevels[level].reach + 1)) == level + 1);
    }
  CHECK(retained_level(retained_table(kNow, kNow)) == 0);
  CHECK(retained_level(retained_table(kNow, kNow + 2 * kLongestRetention)) == kRetainedLevelCount - 1);
}

TEST_CASE("nothing is put into a spare table, and every other table takes something") {
  for (int64_t now : kTimes)
    for (int level = 0; level < kRetainedLevelCount; level++) {
      int64_t from = level == 0 ? 0 : kRetainedLevels[level - 1].reach + 1;
      bool used[kRetainedTablesPerLevel] = {};
      for (int64_t length = from; length <= kRetainedLevels[level].reach; length += kRetainedLevels[level].window / 7 + 1) {
        int table = retained_table(now, now + length);
        REQUIRE(retained_level(table) == level);
        CHECK(!retained_is_spare(table, now));
        used[table % kRetainedTablesPerLevel] = true;
      }
      CHECK(!retained_is_spare(retained_table(now, now + kRetainedLevels[level].reach), now));
      int count = 0;
      for (bool u : used) count += u ? 1 : 0;
      CHECK(count <= kRetainedTablesPerLevel - 1);
    }
}

TEST_CASE("a message's table becomes the spare when its window has passed, for one window") {
  for (int64_t now : kTimes)
    for (int level = 0; level < kRetainedLevelCount; level++) {
      int64_t window = kRetainedLevels[level].window;
      int64_t drop_at = now + kRetainedLevels[level].reach;
      int table = retained_table(now, drop_at);
      int64_t passed = (retained_window(level, drop_at) + 1) * window;
      CHECK(passed > drop_at);
      CHECK(passed - drop_at <= window);
      CHECK(!retained_is_spare(table, passed - 1));
      CHECK(retained_is_spare(table, passed));
      CHECK(retained_spare_since(level, passed) == passed);
      CHECK(retained_is_spare(table, passed + window - 1));
      CHECK(retained_spare_since(level, passed + window - 1) == passed);
      CHECK(!retained_is_spare(table, passed + window));
    }
}

TEST_CASE("what is kept longer than it has to be: at most three times its time, and an hour") {
  for (int64_t length = 0; length <= kLongestRetention; length += length / 50 + kWheelHour / 4) {
    int table = retained_table(kNow, kNow + length);
    int level = retained_level(table);
    int64_t goes = (retained_window(level, kNow + length) + 1) * kRetainedLevels[level].window;
    CHECK(goes - kNow <= 3 * length + kWheelHour);
  }
}
