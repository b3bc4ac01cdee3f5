// Where an acknowledged message is kept: in one of the retained tables, shared by all queues of a database and placed by
// the time at which the message may go. A table belongs to a level (how long its messages are kept) and takes those that
// may go in one window of time; when the window has passed, the table as a whole can be truncated. Windows take turns on
// a level's tables. What is put in now goes to the window that is running or to one of the next four; the sixth table,
// whose window passed last, is given nothing for a whole window: the time in which to truncate it.
//
// The price of whole tables: a message stays up to a window longer than it has to, at most three times its time.
//
// The mapping is no part of the on-disk format: each row says when it may go, and is found wherever it was put.
#pragma once

#include <cstdint>

#include "wheel.hpp"

namespace baton {

struct RetainedLevel {
  int64_t reach;   // for messages kept at most this long
  int64_t window;  // of one table
};

constexpr RetainedLevel kRetainedLevels[] = {
    {4 * kWheelHour, kWheelHour},    {24 * kWheelHour, 6 * kWheelHour}, {8 * kWheelDay, 2 * kWheelDay},
    {64 * kWheelDay, 16 * kWheelDay}, {512 * kWheelDay, 128 * kWheelDay}, {3660 * kWheelDay, 915 * kWheelDay},
};
constexpr int kRetainedLevelCount = static_cast<int>(sizeof(kRetainedLevels) / sizeof(kRetainedLevels[0]));
constexpr int kRetainedTablesPerLevel = 6;
constexpr int kRetainedTables = kRetainedTablesPerLevel * kRetainedLevelCount;
constexpr int64_t kLongestRetention = kRetainedLevels[kRetainedLevelCount - 1].reach;

constexpr int retained_level(int table) { return table / kRetainedTablesPerLevel; }
constexpr int64_t retained_window(int level, int64_t t) { return floor_div(t, kRetainedLevels[level].window); }
constexpr int retained_table_of_window(int level, int64_t window) {
  int64_t turn = window % kRetainedTablesPerLevel;
  return level * kRetainedTablesPerLevel + static_cast<int>(turn < 0 ? turn + kRetainedTablesPerLevel : turn);
}

// The table for a message that may go at drop_at, as seen at `now`.
constexpr int retained_table(int64_t now, int64_t drop_at) {
  int level = 0;
  while (level < kRetainedLevelCount - 1 && drop_at - now > kRetainedLevels[level].reach) level++;
  return retained_table_of_window(level, retained_window(level, drop_at));
}

}  // namespace baton
