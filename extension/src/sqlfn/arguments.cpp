// See arguments.hpp.
#include "arguments.hpp"

#include "../core/envelope.hpp"

namespace baton {

int64 interval_argument(const char* field, const Interval* value, int64 min_us, int64 max_us) {
  if (value->month != 0)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not contain months or years", field),
                    errhint("Their length varies; say it in days.")));
  int64 days_us;
  int64 total;
  if (pg_mul_s64_overflow(value->day, USECS_PER_DAY, &days_us) || pg_add_s64_overflow(days_us, value->time, &total))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is out of range", field)));
  if (total < min_us || total > max_us) {
    const char* low = DatumGetCString(DirectFunctionCall1(
        interval_out, DirectFunctionCall7(make_interval, Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0),
                                          Int32GetDatum(0), Float8GetDatum(static_cast<double>(min_us) / 1e6))));
    const char* high = DatumGetCString(DirectFunctionCall1(
        interval_out, DirectFunctionCall7(make_interval, Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0), Int32GetDatum(0),
                                          Int32GetDatum(0), Float8GetDatum(static_cast<double>(max_us) / 1e6))));
    const char* given = DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(value)));
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is out of range", field),
                    errdetail("It is %s; allowed is %s to %s.", given, low, high)));
  }
  return total;
}

void check_timestamp(const char* field, TimestampTz t) {
  if (TIMESTAMP_NOT_FINITE(t))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be finite", field)));
}

TimestampTz due_argument(const Interval* delay, const TimestampTz* not_before, TimestampTz now, int64 max_delay) {
  if (delay && not_before)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("delay and not_before are both given"), errhint("Pass one of them.")));
  if (delay) {
    int64 us = interval_argument("delay", delay, 0, max_delay);
    return us > 0 ? now + us : 0;
  }
  if (!not_before) return 0;
  check_timestamp("not_before", *not_before);
  if (*not_before <= now) return 0;
  if (*not_before - now > max_delay)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("not_before is too far in the future"),
                    errdetail("It is %s; the queue's max_delay allows up to %s.", pstrdup(timestamptz_to_str(*not_before)),
                              pstrdup(timestamptz_to_str(now + max_delay)))));
  return *not_before;
}

void check_expiry(TimestampTz expires_at, TimestampTz due, TimestampTz now) {
  if (expires_at > now && expires_at > due) return;
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("expires_at is not after the time from which the message may be claimed"),
                  errdetail("It is %s; the message may be claimed from %s.", pstrdup(timestamptz_to_str(expires_at)),
                            pstrdup(timestamptz_to_str(due != 0 ? due : now)))));
}

void check_text_length(const char* field, const text* value, int max_bytes) {
  int n = static_cast<int>(VARSIZE_ANY_EXHDR(value));
  if (n > max_bytes)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is too long", field),
                    errdetail("It has %d bytes; the limit is %d.", n, max_bytes)));
}

ArrayArgument array_argument(const char* field, FunctionCallInfo fcinfo, int arg, Oid element_type) {
  ArrayArgument a{field, nullptr, nullptr, 0};
  if (PG_ARGISNULL(arg)) return a;
  ArrayType* array = PG_GETARG_ARRAYTYPE_P(arg);
  if (ARR_NDIM(array) > 1)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must have one dimension", field),
                    errdetail("It has %d.", ARR_NDIM(array))));
  int16 length;
  bool by_value;
  char alignment;
  get_typlenbyvalalign(element_type, &length, &by_value, &alignment);
  deconstruct_array(array, element_type, length, by_value, alignment, &a.values, &a.nulls, &a.count);
  if (a.count == 0) a.count = -1;  // an empty array is no array of one or n
  return a;
}

void check_array_length(const ArrayArgument& a, int items) {
  if (a.count == 0 || a.count == 1 || a.count == items || (a.count == -1 && items == 0)) return;
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s has the wrong number of elements", a.field),
                  errdetail("It has %d; expected is %d, or 1 that holds for all.", Max(a.count, 0), items)));
}

bool array_element(const ArrayArgument& a, int i, Datum* out) {
  if (a.count <= 0) return false;
  int k = a.count == 1 ? 0 : i;
  if (a.nulls[k]) return false;
  *out = a.values[k];
  return true;
}

ReturnSetInfo* begin_result(FunctionCallInfo fcinfo) {
  InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
  return reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
}

ReturnSetInfo* begin_result_in_from(FunctionCallInfo fcinfo, const char* verb) {
  auto* rsinfo = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  if (!rsinfo || !IsA(rsinfo, ReturnSetInfo) || !(rsinfo->allowedModes & SFRM_Materialize_Preferred))
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("%s must be called in FROM", verb),
                    errhint("Write SELECT … FROM baton.%s(…).", verb)));
  return begin_result(fcinfo);
}

char* claim_worker_name(FunctionCallInfo fcinfo, int arg) {
  if (PG_ARGISNULL(arg)) return nullptr;
  text* t = PG_GETARG_TEXT_PP(arg);
  check_text_length("worker", t, kMaxWorkerBytes);
  char* name = text_to_cstring(t);
  return name[0] ? name : nullptr;
}

}  // namespace baton
