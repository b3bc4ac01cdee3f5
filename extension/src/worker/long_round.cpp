// See long_round.hpp.
#include "long_round.hpp"

#include "../pg/clock.hpp"
#include "../pg/guc.hpp"
#include "../pg/shmem.hpp"
#include "../sqlfn/long_return.hpp"

namespace baton {
namespace {

constexpr int64 kRetryFailed = 5 * USECS_PER_SEC;

void look_body(void* argument) { look_at_long_segments(static_cast<LongLook*>(argument)); }

struct ReturnWork {
  int32 queue_id;
  int returned;
};

void return_body(void* argument) {
  auto* w = static_cast<ReturnWork*>(argument);
  w->returned = return_long_claims(w->queue_id);
}

}  // namespace

TimestampTz long_round(StepRunner run, int32 only_queue, bool forced) {
  TimestampTz now = clock_now();
  if (!forced && now < long_next()) return long_next();
  auto* look = static_cast<LongLook*>(MemoryContextAllocZero(round_context(), sizeof(LongLook)));
  if (!run(Step::kLong, look_body, look)) return now + kRetryFailed;
  for (int i = 0; i < look->count; i++) {
    if (only_queue != 0 && look->queues[i] != only_queue) continue;
    ReturnWork w{look->queues[i], 1};
    // A queue that cannot be loaded keeps what it has there, and no other waits for it.
    while (w.returned > 0 && run(Step::kLong, return_body, &w)) continue;
  }
  return long_next();
}

}  // namespace baton
