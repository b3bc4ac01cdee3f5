// The settling verbs. ack, release and quarantine join the caller's transaction and raise when fenced; settle reports;
// start, extend and hand_back act at once.
#include "../core/envelope.hpp"
#include "../leasemap/xact.hpp"
#include "arguments.hpp"
#include "settle_tokens.hpp"
#include "verdicts.hpp"

namespace baton {
namespace {

text* token_argument(FunctionCallInfo fcinfo, int arg) {
  if (PG_ARGISNULL(arg)) raise_bad_argument("token", "must not be null");
  return PG_GETARG_TEXT_PP(arg);
}

Settlement one_settlement(FunctionCallInfo fcinfo, Verdict verdict) {
  Settlement s;
  memset(&s, 0, sizeof(s));
  s.ord = 1;
  s.token_text = token_argument(fcinfo, 0);
  s.verdict = verdict;
  return s;
}

void reason_arguments(FunctionCallInfo fcinfo, int reason_arg, int error_arg, Settlement* s) {
  if (!PG_ARGISNULL(reason_arg)) {
    s->reason = PG_GETARG_TEXT_PP(reason_arg);
    check_text_length("reason", s->reason, kMaxReasonBytes);
  }
  if (!PG_ARGISNULL(error_arg)) {
    s->has_error = true;
    s->error = PG_GETARG_DATUM(error_arg);
    Size n = toast_raw_datum_size(s->error) - VARHDRSZ;
    if (n > static_cast<Size>(kMaxErrorBytes))
      ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("error is too large"),
                      errdetail("It has %zu bytes; the limit is %d.", n, kMaxErrorBytes)));
  }
}

Datum settle_one(FunctionCallInfo fcinfo, Verdict verdict, const char* verb) {
  require_writable(verb);
  Settlement s = one_settlement(fcinfo, verdict);
  if (verdict == Verdict::kQuarantine) reason_arguments(fcinfo, 1, 2, &s);
  settle_tokens(&s, 1, true);
  raise_if_refused(&s, 1, verb);
  return CStringGetTextDatum(outcome_entry(s.outcome).word);
}

Datum ack_batch(FunctionCallInfo fcinfo) {
  require_writable("ack_batch");
  int n;
  Settlement* items = settlements_from_tokens(fcinfo, 0, &n);
  for (int i = 0; i < n; i++) items[i].verdict = Verdict::kAck;
  settle_tokens(items, n, false);
  raise_if_refused(items, n, "ack_batch");
  return Int32GetDatum(n);
}

Datum release(FunctionCallInfo fcinfo) {
  require_writable("release");
  bool failed = PG_ARGISNULL(3) || PG_GETARG_BOOL(3);
  Settlement s = one_settlement(fcinfo, failed ? Verdict::kRelease : Verdict::kReleaseUnfailed);
  if (!PG_ARGISNULL(1)) {
    s.has_delay = true;
    s.delay_us = interval_argument("delay", PG_GETARG_INTERVAL_P(1), 0, release_delay_limit(s.token_text));
  }
  reason_arguments(fcinfo, 2, 4, &s);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  settle_tokens(&s, 1, true);
  raise_if_refused(&s, 1, "release");
  const char* state = s.outcome == Outcome::kScheduled ? "scheduled" : s.outcome == Outcome::kQuarantined ? "quarantined"
                      : s.outcome == Outcome::kExpired   ? "expired"
                                                         : "ready";
  Datum values[3] = {CStringGetTextDatum(state), TimestampTzGetDatum(s.due), Int32GetDatum(s.slot.failures + (failed ? 1 : 0))};
  bool nulls[3] = {false, s.outcome != Outcome::kScheduled, false};
  tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  return (Datum)0;
}

void lease_argument(FunctionCallInfo fcinfo, int arg, Settlement* items, int n) {
  if (PG_ARGISNULL(arg)) return;
  const Interval* lease = PG_GETARG_INTERVAL_P(arg);
  for (int i = 0; i < n; i++) {
    const Queue* q = queue_of_token(items[i].token_text);
    items[i].has_lease = true;
    items[i].lease_us = q ? interval_argument("lease", lease, q->min_lease, q->max_lease) : 0;
  }
}

// Nobody may trust a longer deadline that a crash could take back.
void flush(const Settlement* items, int n) {
  XLogRecPtr lsn = InvalidXLogRecPtr;
  for (int i = 0; i < n; i++)
    if (items[i].must_flush && items[i].lsn > lsn) lsn = items[i].lsn;
  if (lsn != InvalidXLogRecPtr) XLogFlush(lsn);
}

Datum start(FunctionCallInfo fcinfo) {
  require_writable("start");
  Settlement s = one_settlement(fcinfo, Verdict::kStart);
  settle_tokens(&s, 1, true);
  raise_if_refused(&s, 1, "start");
  flush(&s, 1);
  return TimestampTzGetDatum(s.slot.deadline);
}

Datum extend(FunctionCallInfo fcinfo) {
  require_writable("extend");
  Settlement s = one_settlement(fcinfo, Verdict::kExtend);
  lease_argument(fcinfo, 1, &s, 1);
  settle_tokens(&s, 1, true);
  raise_if_refused(&s, 1, "extend");
  flush(&s, 1);
  return TimestampTzGetDatum(s.slot.deadline);
}

Datum extend_batch(FunctionCallInfo fcinfo) {
  require_writable("extend_batch");
  int n;
  Settlement* items = settlements_from_tokens(fcinfo, 0, &n);
  for (int i = 0; i < n; i++) items[i].verdict = Verdict::kExtend;
  lease_argument(fcinfo, 1, items, n);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  settle_tokens(items, n, false);
  flush(items, n);
  for (int i = 0; i < n; i++) {
    bool ok = succeeded(items[i].outcome);
    Datum values[3] = {Int32GetDatum(i + 1), CStringGetTextDatum(outcome_entry(items[i].outcome).word),
                       TimestampTzGetDatum(items[i].slot.deadline)};
    bool nulls[3] = {false, false, !ok};
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  }
  return (Datum)0;
}

void put_outcomes(ReturnSetInfo* rsinfo, const Settlement* items, int n) {
  for (int i = 0; i < n; i++) {
    Datum values[2] = {Int32GetDatum(i + 1), CStringGetTextDatum(outcome_entry(items[i].outcome).word)};
    bool nulls[2] = {false, false};
    tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
  }
}

Datum hand_back(FunctionCallInfo fcinfo) {
  require_writable("hand_back");
  int n;
  Settlement* items = settlements_from_tokens(fcinfo, 0, &n);
  for (int i = 0; i < n; i++) items[i].verdict = Verdict::kHandBack;
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  settle_tokens(items, n, false);
  put_outcomes(rsinfo, items, n);
  return (Datum)0;
}

Datum settle(FunctionCallInfo fcinfo) {
  require_writable("settle");
  int n;
  Settlement* items = settlements_from_tokens(fcinfo, 0, &n);
  read_verdicts(fcinfo, 1, 2, 3, items, n);
  ReturnSetInfo* rsinfo = begin_result(fcinfo);
  settle_tokens(items, n, false);
  put_outcomes(rsinfo, items, n);
  return (Datum)0;
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_ack) { return baton::settle_one(fcinfo, baton::Verdict::kAck, "ack"); }
BATON_SQL_FUNCTION(baton_quarantine) { return baton::settle_one(fcinfo, baton::Verdict::kQuarantine, "quarantine"); }
BATON_SQL_FUNCTION(baton_ack_batch) { return baton::ack_batch(fcinfo); }
BATON_SQL_FUNCTION(baton_release) { return baton::release(fcinfo); }
BATON_SQL_FUNCTION(baton_start) { return baton::start(fcinfo); }
BATON_SQL_FUNCTION(baton_extend) { return baton::extend(fcinfo); }
BATON_SQL_FUNCTION(baton_extend_batch) { return baton::extend_batch(fcinfo); }
BATON_SQL_FUNCTION(baton_hand_back) { return baton::hand_back(fcinfo); }
BATON_SQL_FUNCTION(baton_settle) { return baton::settle(fcinfo); }
