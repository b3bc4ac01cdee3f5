// Options of a queue as create_queue and alter_queue take them: defaults, limits, and the one place that checks them.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

void default_options(Queue* q);

// Overlays the arguments that are not null. Intervals and numbers are checked against their own limits.
// first: number of the argument "lease"; the eleven after it follow in the order of the SQL declaration.
constexpr int kCommonOptions = 13;
void read_common_options(FunctionCallInfo fcinfo, int first, Queue* q);
// first: number of the argument "retention"; five follow it. An SQL declaration of before 0.2.0 ends before them.
void read_later_options(FunctionCallInfo fcinfo, int first, Queue* q);
void read_segments(FunctionCallInfo fcinfo, int arg, Queue* q);
void read_segment_bytes(FunctionCallInfo fcinfo, int arg, Queue* q);

// Limits between options: 22023 that names both.
void check_options(const Queue* q);

const char* durability_word(Durability d);
Interval* make_interval(int64 us);

}  // namespace baton
