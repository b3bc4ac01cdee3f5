// Where a message that is due later waits: in one of the due-time buckets, tables shared by all queues of a database. A
// bucket table belongs to a level (how far ahead) and takes the messages due in one window of time; a lane of its map
// takes those due in one small part of the window. So the mover finds what is due soon by the clock alone, in pages that
// hold nothing else, and a table is empty, and can be truncated, when its window has passed. Windows take turns on a
// level's tables; two of the tables are spare, so that one that is not empty yet is seldom met again.
//
// The mapping is part of the on-disk format: a message must be found where it was put. Plain arithmetic, microseconds.
#pragma once

#include <cstdint>

namespace baton {

struct WheelLevel {
  int64_t reach;   // for messages due at most this far ahead
  int64_t window;  // of one table
  int64_t lane;    // of one lane
};

constexpr int64_t kWheelSecond = 1000000;
constexpr int64_t kWheelHour = 3600 * kWheelSecond;
constexpr int64_t kWheelDay = 24 * kWheelHour;
constexpr WheelLevel kWheelLevels[] = {
    {4 * kWheelHour, kWheelHour, 10 * kWheelSecond},
    {4 * kWheelDay, kWheelDay, 180 * kWheelSecond},
    {180 * kWheelDay, 45 * kWheelDay, 2 * kWheelHour},
};
constexpr int kWheelTablesPerLevel = 6;
constexpr int kWheelTables = kWheelTablesPerLevel * static_cast<int>(sizeof(kWheelLevels) / sizeof(kWheelLevels[0]));
constexpr int kWheelMostLanes = 540;

constexpr const WheelLevel& wheel_level(int table) { return kWheelLevels[table / kWheelTablesPerLevel]; }

constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The table for a message that is due at `due`, as seen at `now`.
constexpr int wheel_table(int64_t now, int64_t due) {
  int level = 0;
  int last = kWheelTables / kWheelTablesPerLevel - 1;
  while (level < last && due - now > kWheelLevels[level].reach) level++;
  int64_t turn = floor_div(due, kWheelLevels[level].window) % kWheelTablesPerLevel;
  if (turn < 0) turn += kWheelTablesPerLevel;
  return level * kWheelTablesPerLevel + static_cast<int>(turn);
}

// The lane of a message in its table, from 1.
constexpr uint32_t wheel_lane(int table, int64_t due) {
  const WheelLevel& level = wheel_level(table);
  int64_t in_window = due - floor_div(due, level.window) * level.window;
  return static_cast<uint32_t>(1 + in_window / level.lane);
}

// The latest start, at or before `until`, of the time that a lane stands for. What is in the lane is due in
// [start, start + level.lane), or in an earlier or later turn of the wheel.
constexpr int64_t wheel_lane_start(int table, uint32_t lane, int64_t until) {
  const WheelLevel& level = wheel_level(table);
  int64_t period = level.window * kWheelTablesPerLevel;
  int64_t offset = (table % kWheelTablesPerLevel) * level.window + static_cast<int64_t>(lane - 1) * level.lane;
  return offset + floor_div(until - offset, period) * period;
}

}  // namespace baton
