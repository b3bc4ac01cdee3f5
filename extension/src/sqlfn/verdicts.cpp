// See verdicts.hpp.
#include "verdicts.hpp"

#include "../core/envelope.hpp"
#include "arguments.hpp"

namespace baton {
namespace {

constexpr int64 kDay = 86400LL * 1000000;

Verdict parse_verdict(Datum word) {
  char* w = TextDatumGetCString(word);
  if (strcmp(w, "ack") == 0) return Verdict::kAck;
  if (strcmp(w, "release") == 0) return Verdict::kRelease;
  if (strcmp(w, "release_unfailed") == 0) return Verdict::kReleaseUnfailed;
  if (strcmp(w, "quarantine") == 0) return Verdict::kQuarantine;
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("verdict \"%.40s\" is unknown", w),
                  errhint("Verdicts are ack, release, release_unfailed, quarantine.")));
  pg_unreachable();
}

}  // namespace

Queue* queue_of_token(text* token) {
  if (!token) return nullptr;
  SipKeyPair pair = token_key();
  Token t;
  if (!parse_token(VARDATA_ANY(token), VARSIZE_ANY_EXHDR(token), SipKey{pair.k0, pair.k1}, &t) || t.database != MyDatabaseId) return nullptr;
  return find_queue_by_id(static_cast<int32>(t.queue));
}

int64 release_delay_limit(text* token) {
  const Queue* q = queue_of_token(token);
  return q ? q->max_delay : 180 * kDay;
}

Settlement* settlements_from_tokens(FunctionCallInfo fcinfo, int arg, int* count) {
  if (PG_ARGISNULL(arg)) raise_bad_argument("tokens", "must not be null");
  ArrayArgument tokens = array_argument("tokens", fcinfo, arg, TEXTOID);
  int n = Max(tokens.count, 0);
  if (n > kMaxBatchItems)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("tokens has too many elements"),
                    errdetail("It has %d; the limit is %d.", n, kMaxBatchItems)));
  auto* items = static_cast<Settlement*>(MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Settlement) * static_cast<Size>(Max(n, 1))));
  for (int i = 0; i < n; i++) {
    memset(&items[i], 0, sizeof(Settlement));
    items[i].ord = i + 1;
    items[i].token_text = tokens.nulls[i] ? nullptr : DatumGetTextPP(tokens.values[i]);
  }
  *count = n;
  return items;
}

void read_verdicts(FunctionCallInfo fcinfo, int verdict_arg, int delay_arg, int reason_arg, Settlement* items, int n) {
  if (PG_ARGISNULL(verdict_arg)) raise_bad_argument("verdicts", "must not be null");
  ArrayArgument verdicts = array_argument("verdicts", fcinfo, verdict_arg, TEXTOID);
  ArrayArgument delays = array_argument("delays", fcinfo, delay_arg, INTERVALOID);
  ArrayArgument reasons = array_argument("reasons", fcinfo, reason_arg, TEXTOID);
  check_array_length(verdicts, n);
  check_array_length(delays, n);
  check_array_length(reasons, n);
  for (int i = 0; i < n; i++) {
    Settlement* s = &items[i];
    Datum d;
    if (!array_element(verdicts, i, &d)) raise_bad_argument("verdicts", "must not contain nulls");
    s->verdict = parse_verdict(d);
    if (array_element(delays, i, &d)) {
      s->has_delay = true;
      s->delay_us = interval_argument("delays", DatumGetIntervalP(d), 0, release_delay_limit(s->token_text));
    }
    if (array_element(reasons, i, &d)) {
      s->reason = DatumGetTextPP(d);
      check_text_length("reasons", s->reason, kMaxReasonBytes);
    }
  }
}

}  // namespace baton
