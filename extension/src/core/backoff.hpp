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

}  // namespace baton
