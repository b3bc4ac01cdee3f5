// Reading and checking arguments of the verbs. Everything here raises 22023 naming the field, the limit and the value's
// size, before any write; never the value of a payload.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

// Microseconds of an interval without months. NULL interval: fallback. Negative, or above max: 22023.
int64 interval_argument(const char* field, const Interval* value, int64 min_us, int64 max_us);

// When a message is due, from delay or not_before (nullptr: not given): 0 for at once, which times that have passed are.
TimestampTz due_argument(const Interval* delay, const TimestampTz* not_before, TimestampTz now, int64 max_delay);
void check_timestamp(const char* field, TimestampTz t);  // finite
// The message's expiry must be after the time from which it may be claimed; due 0: from now on.
void check_expiry(TimestampTz expires_at, TimestampTz due, TimestampTz now);

// A text argument as given; at most max_bytes.
void check_text_length(const char* field, const text* value, int max_bytes);

// An array argument that has one element per item or one for all. Null array: every element is null.
struct ArrayArgument {
  const char* field;
  Datum* values;
  bool* nulls;
  int count;  // 0: null array
};
ArrayArgument array_argument(const char* field, FunctionCallInfo fcinfo, int arg, Oid element_type);
void check_array_length(const ArrayArgument& a, int items);
// Element for item i (0-based). Returns false for null.
bool array_element(const ArrayArgument& a, int i, Datum* out);

// Result of a set-returning verb, materialised.
ReturnSetInfo* begin_result(FunctionCallInfo fcinfo);
// The same for verbs that hand out messages: they refuse to run in a select list, where PostgreSQL may evaluate the set
// beside others, cut it short or run it once per output column: hint "use FROM".
ReturnSetInfo* begin_result_in_from(FunctionCallInfo fcinfo, const char* verb);

char* claim_worker_name(FunctionCallInfo fcinfo, int arg);  // nullptr for NULL

}  // namespace baton
