// The wait before a failed message is offered again.
#pragma once

#include <cstdint>

namespace baton {

// base doubled for every failure after the first, at most cap. Microseconds; failures counts from 1. Never overflows.
constexpr int64_t backoff_us(int64_t base, int64_t cap, int failures) {
  if (base <= 0 || failures <= 0) return 0;
  int64_t wait = base < cap ? base : cap;
  for (int i = 1; i < failures && wait < cap; i++) wait = wait > cap / 2 ? cap : wait * 2;
  return wait;
}

// A number that is spread evenly over 64 bits, always the same for the same message and failures.
constexpr uint64_t scatter(int64_t id, uint32_t count) {
  uint64_t x = static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15ULL + count;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The wait of one message: its backoff and up to a tenth more, so that messages which failed together do not come back
// together. Never less than the backoff, and only by the tenth more than cap.
constexpr int64_t spread_backoff_us(int64_t base, int64_t cap, int failures, int64_t id) {
  int64_t wait = backoff_us(base, cap, failures);
  int64_t tenth = wait / 10;
  if (tenth <= 0) return wait;
  return wait + static_cast<int64_t>(scatter(id, static_cast<uint32_t>(failures)) % static_cast<uint64_t>(tenth));
}

// When a message whose lease is over may be claimed by others: at the deadline, or later by a part of the spread, which is
// no longer than a tenth of the time it was held. In eighths, and the same for neighbours: who looks for what has lapsed
// looks eight times, and finds runs of slots.
constexpr int64_t lapse_eligible_at(int64_t deadline, int64_t held_us, int64_t spread_us, int64_t id) {
  int64_t window = held_us / 10 < spread_us ? held_us / 10 : spread_us;
  if (window <= 0) return deadline;
  return deadline + window / 8 * static_cast<int64_t>(scatter(id / 32, 0) % 8);
}

}  // namespace baton
