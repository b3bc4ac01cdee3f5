// Nothing is clamped: whatever is out of range is refused by name, with the limit and the value.
#include "queue_options.hpp"

#include "../core/slot.hpp"

namespace baton {

namespace {

constexpr int64 kSecond = USECS_PER_SEC;
constexpr int64 kDay = USECS_PER_DAY;

struct IntervalOption {
  const char* name;
  int64 Queue::*field;
  int64 initial;
  int64 low;
  int64 high;
};

// A slot keeps the age of a claim in 32 bits of milliseconds and the due time of a release within 248 days of the
// lease's end: hence the upper limits.
const IntervalOption kLease = {"lease", &Queue::lease, 30 * kSecond, 100000, 7 * kDay};
const IntervalOption kMinLease = {"min_lease", &Queue::min_lease, 100000, 100000, 7 * kDay};
const IntervalOption kMaxLease = {"max_lease", &Queue::max_lease, 12 * 3600 * kSecond, 100000, 7 * kDay};
const IntervalOption kMaxLifetime = {"max_lifetime", &Queue::max_lifetime, 12 * 3600 * kSecond, 100000, 30 * kDay};
const IntervalOption kBackoff = {"backoff", &Queue::backoff, kSecond, 0, 180 * kDay};
const IntervalOption kMaxBackoff = {"max_backoff", &Queue::max_backoff, 3600 * kSecond, 0, 180 * kDay};
const IntervalOption kMaxDelay = {"max_delay", &Queue::max_delay, 30 * kDay, 0, 180 * kDay};

constexpr int64 kYears = 3660 * kDay;
const IntervalOption kRetention = {"retention", &Queue::retention, 0, 0, kYears};
const IntervalOption kReplayWindow = {"replay_window", &Queue::replay_window, 0, 0, kYears};
const IntervalOption kStartWithin = {"start_within", &Queue::start_within, 0, 0, 7 * kDay};

struct IntegerOption {
  const char* name;
  int32 Queue::*field;
  int32 initial;
  int32 low;
  int32 high;
};

const IntegerOption kMaxAttempts = {"max_attempts", &Queue::max_attempts, 20, 1, 60000};
const IntegerOption kClaimCeiling = {"claim_ceiling", &Queue::claim_ceiling, 1000, 1, 2000000000};
const IntegerOption kMaxPayload = {"max_payload_bytes", &Queue::max_payload_bytes, 1048576, 0, 268435455};
const IntegerOption kMaxHeaders = {"max_headers_bytes", &Queue::max_headers_bytes, 65536, 0, 1048576};
static_assert(60000 < kMaxFailures && 2000000000 < kMaxGeneration);

constexpr int64 kDefaultSegmentBytes = INT64CONST(128) << 20;
constexpr int64 kLeastSegmentBytes = 64 << 10;
constexpr int64 kMostSegmentBytes = INT64CONST(1) << 40;

const char* interval_text(int64 us) {
  return DatumGetCString(DirectFunctionCall1(interval_out, PointerGetDatum(make_interval(us))));
}

void read_interval(FunctionCallInfo fcinfo, int arg, const IntervalOption& option, Queue* q) {
  if (PG_ARGISNULL(arg)) return;
  const Interval* i = PG_GETARG_INTERVAL_P(arg);
  const char* given = DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(arg)));
  if (i->month != 0)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s must be a length of time without months or years", option.name),
                    errdetail("The value given is %s.", given)));
  int64 us = 0;
  bool overflow = __builtin_mul_overflow(static_cast<int64>(i->day), USECS_PER_DAY, &us) ||
                  __builtin_add_overflow(us, i->time, &us);
  if (overflow || us < option.low || us > option.high)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
             errmsg("%s must be between %s and %s", option.name, interval_text(option.low), interval_text(option.high)),
             errdetail("The value given is %s.", given)));
  q->*option.field = us;
}

void check_range(const char* name, int64 value, int64 low, int64 high) {
  if (value >= low && value <= high) return;
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                  errmsg("%s must be between " INT64_FORMAT " and " INT64_FORMAT, name, low, high),
                  errdetail("The value given is " INT64_FORMAT ".", value)));
}

void read_integer(FunctionCallInfo fcinfo, int arg, const IntegerOption& option, Queue* q) {
  if (PG_ARGISNULL(arg)) return;
  int32 value = PG_GETARG_INT32(arg);
  check_range(option.name, value, option.low, option.high);
  q->*option.field = value;
}

void check_order(const Queue* q, const IntervalOption& low, const IntervalOption& high) {
  if (q->*low.field <= q->*high.field) return;
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be above %s", low.name, high.name),
                  errdetail("%s is %s, %s is %s.", low.name, interval_text(q->*low.field), high.name,
                            interval_text(q->*high.field))));
}

}  // namespace

Interval* make_interval(int64 us) {
  Interval* i = static_cast<Interval*>(palloc0(sizeof(Interval)));
  i->day = static_cast<int32>(us / USECS_PER_DAY);
  i->time = us % USECS_PER_DAY;
  return i;
}

const char* durability_word(Durability d) {
  switch (d) {
    case Durability::kReplicated:
      return "replicated";
    case Durability::kAsync:
      return "async";
    case Durability::kVolatile:
      return "volatile";
    default:
      return "local";
  }
}

void default_options(Queue* q) {
  const IntervalOption* intervals[] = {&kLease,    &kMinLease,   &kMaxLease, &kMaxLifetime,  &kBackoff,
                                       &kMaxBackoff, &kMaxDelay, &kRetention, &kReplayWindow, &kStartWithin};
  for (const IntervalOption* o : intervals) q->*o->field = o->initial;
  const IntegerOption* integers[] = {&kMaxAttempts, &kClaimCeiling, &kMaxPayload, &kMaxHeaders};
  for (const IntegerOption* o : integers) q->*o->field = o->initial;
  q->durability = Durability::kLocal;
  q->claim_flush = true;
  q->replicable = false;
  q->keep_expired = false;
  q->expiry_ends_lease = false;
  q->notify = false;
  q->segment_count = 3;
  q->segment_bytes = kDefaultSegmentBytes;
}

void read_common_options(FunctionCallInfo fcinfo, int first, Queue* q) {
  int arg = first;
  read_interval(fcinfo, arg++, kLease, q);
  read_interval(fcinfo, arg++, kMinLease, q);
  read_interval(fcinfo, arg++, kMaxLease, q);
  read_interval(fcinfo, arg++, kMaxLifetime, q);
  read_integer(fcinfo, arg++, kMaxAttempts, q);
  read_integer(fcinfo, arg++, kClaimCeiling, q);
  read_interval(fcinfo, arg++, kBackoff, q);
  read_interval(fcinfo, arg++, kMaxBackoff, q);
  read_interval(fcinfo, arg++, kMaxDelay, q);
  read_integer(fcinfo, arg++, kMaxPayload, q);
  read_integer(fcinfo, arg++, kMaxHeaders, q);
  if (!PG_ARGISNULL(arg)) {
    char* word = text_to_cstring(PG_GETARG_TEXT_PP(arg));
    if (!parse_durability(word, &q->durability))
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                      errmsg("durability must be local, replicated, async or volatile"),
                      errdetail("The value given is \"%s\".", word)));
  }
  arg++;
  if (!PG_ARGISNULL(arg)) q->claim_flush = PG_GETARG_BOOL(arg);
}

void read_later_options(FunctionCallInfo fcinfo, int first, Queue* q) {
  if (PG_NARGS() <= first) return;
  int arg = first;
  read_interval(fcinfo, arg++, kRetention, q);
  read_interval(fcinfo, arg++, kReplayWindow, q);
  if (!PG_ARGISNULL(arg)) {
    char* word = text_to_cstring(PG_GETARG_TEXT_PP(arg));
    q->keep_expired = strcmp(word, "keep") == 0;
    if (!q->keep_expired && strcmp(word, "drop") != 0)
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("expired must be drop or keep"),
                      errdetail("The value given is \"%s\".", word)));
  }
  arg++;
  if (!PG_ARGISNULL(arg)) q->expiry_ends_lease = PG_GETARG_BOOL(arg);
  arg++;
  read_interval(fcinfo, arg++, kStartWithin, q);
  if (!PG_ARGISNULL(arg)) q->notify = PG_GETARG_BOOL(arg);
}

void read_segments(FunctionCallInfo fcinfo, int arg, Queue* q) {
  if (PG_ARGISNULL(arg)) return;
  q->segment_count = PG_GETARG_INT32(arg);
  check_range("segments", q->segment_count, 2, kMaxSegments);
}

void read_segment_bytes(FunctionCallInfo fcinfo, int arg, Queue* q) {
  if (PG_ARGISNULL(arg)) return;
  q->segment_bytes = PG_GETARG_INT64(arg);
  check_range("segment_bytes", q->segment_bytes, kLeastSegmentBytes, kMostSegmentBytes);
}

void check_options(const Queue* q) {
  check_order(q, kMinLease, kLease);
  check_order(q, kLease, kMaxLease);
  check_order(q, kMaxLease, kMaxLifetime);
  check_order(q, kBackoff, kMaxBackoff);
  check_order(q, kMaxBackoff, kMaxDelay);
  // What is kept is kept beyond any lease that its workers were told: a message must not be gone while somebody may still
  // ask about it (T29).
  if (q->retention > 0) check_order(q, kMaxLease, kRetention);
  if (q->replay_window > 0) check_order(q, kReplayWindow, kRetention);
  if (q->start_within > 0) check_order(q, kStartWithin, kMaxLease);
  if (q->max_attempts > q->claim_ceiling)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("max_attempts must not be above claim_ceiling"),
                    errdetail("max_attempts is %d, claim_ceiling is %d.", q->max_attempts, q->claim_ceiling)));
  if (q->replicable && q->durability == Durability::kVolatile)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a volatile queue cannot be replicable"),
                    errdetail("Unlogged tables cannot be published.")));
}

}  // namespace baton
