// Places of retained messages: each window has a table, which has time to be truncated before it is used again.
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

TEST_CASE("a table is given nothing for a whole window after its own has passed") {
  for (int64_t start : kTimes)
    for (int level = 0; level < kRetainedLevelCount; level++) {
      int64_t window = kRetainedLevels[level].window;
      int64_t from = level == 0 ? 0 : kRetainedLevels[level - 1].reach + 1;
      int table = retained_table(start, start + kRetainedLevels[level].reach);
      REQUIRE(retained_level(table) == level);
      int64_t passed = (retained_window(level, start + kRetainedLevels[level].reach) + 1) * window;
      for (int64_t now = passed; now < passed + window; now += window / 13)
        for (int64_t length = from; length <= kRetainedLevels[level].reach; length += window / 7) CHECK(retained_table(now, now + length) != table);
      CHECK(retained_table(passed + window - 1, passed + window - 1 + kRetainedLevels[level].reach) != table);
      CHECK(retained_table(passed + window, passed + window + kRetainedLevels[level].reach) == table);
    }
}

TEST_CASE("messages in one table are of one window, until it comes round again") {
  for (int64_t now : kTimes)
    for (int level = 0; level < kRetainedLevelCount; level++) {
      int64_t window = kRetainedLevels[level].window;
      int64_t from = level == 0 ? 0 : kRetainedLevels[level - 1].reach + 1;
      for (int64_t length = from; length < kRetainedLevels[level].reach; length += window / 5) {
        int64_t drop_at = now + length;
        int table = retained_table(now, drop_at);
        CHECK(retained_table_of_window(level, retained_window(level, drop_at)) == table);
        int64_t end = (retained_window(level, drop_at) + 1) * window;
        CHECK(end > drop_at);
        CHECK(end - drop_at <= window);
      }
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
