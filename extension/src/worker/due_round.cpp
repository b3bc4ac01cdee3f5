// See due_round.hpp. Each batch has a transaction of its own: a crash leaves every message in exactly one place, and one
// queue that fails holds up no other.
#include "due_round.hpp"

#include "../pg/clock.hpp"
#include "../pg/shmem.hpp"

namespace baton {
namespace {

constexpr int kPagesAtOnce = 256;
constexpr int kTaken = 4 * kDueBatch;
constexpr int64 kRetryFailed = kDueAhead + 5 * USECS_PER_SEC;

struct ReadWork {
  DueFinder* finder;
  TimestampTz until;
};

void read_body(void* argument) {
  auto* w = static_cast<ReadWork*>(argument);
  (void)read_due_lanes(w->finder, w->until, kPagesAtOnce);
}

struct MoveWork {
  DueFinder* finder;
  DueMessage* messages;
  int count;
};

void move_body(void* argument) {
  auto* w = static_cast<MoveWork*>(argument);
  (void)move_due_messages(w->finder, w->messages[0].queue_id, w->messages[0].table, w->messages, w->count);
}

// By queue and table, and in the order of their places, which is the order of their enqueues.
int by_group(const void* a, const void* b) {
  auto* x = static_cast<const DueMessage*>(a);
  auto* y = static_cast<const DueMessage*>(b);
  if (x->queue_id != y->queue_id) return x->queue_id < y->queue_id ? -1 : 1;
  if (x->table != y->table) return x->table < y->table ? -1 : 1;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index ? 1 : 0;
}

void move_taken(StepRunner run, DueFinder* finder, DueMessage* taken, int n) {
  qsort(taken, static_cast<size_t>(n), sizeof(DueMessage), by_group);
  for (int i = 0; i < n;) {
    int k = 1;
    while (i + k < n && k < kDueBatch && taken[i + k].queue_id == taken[i].queue_id && taken[i + k].table == taken[i].table) k++;
    MoveWork w{finder, taken + i, k};
    if (!run(Step::kDue, move_body, &w)) {
      TimestampTz again = clock_now() + kRetryFailed;
      for (int m = i; m < i + k; m++) put_due(finder, taken[m], again);
    }
    i += k;
  }
}

}  // namespace

TimestampTz due_round(StepRunner run, DueFinder* finder, int64 budget, bool* more) {
  TimestampTz start = GetCurrentTimestamp();
  *more = false;
  for (;;) {
    TimestampTz until = clock_now() + kDueAhead;
    if (!due_finder_has_read(finder) || due_next() <= until) {
      ReadWork r{finder, until};
      if (!run(Step::kDue, read_body, &r)) return clock_now() + kRetryFailed;
    }
    MemoryContext old = MemoryContextSwitchTo(round_context());
    auto* taken = static_cast<DueMessage*>(palloc(sizeof(DueMessage) * kTaken));
    int n = 0;
    while (n < kTaken && take_due(finder, until, &taken[n])) n++;
    MemoryContextSwitchTo(old);
    if (n > 0) move_taken(run, finder, taken, n);
    pfree(taken);
    TimestampTz next = finder_next(finder);
    if (next > clock_now() + kDueAhead) {
      // What others have put there since was noted apart.
      if (due_finder_queue(finder) == 0) {
        end_due_look(next);
        next = Min(next, due_next());
      }
      return next == kNever ? kNever : next - kDueAhead;
    }
    if (GetCurrentTimestamp() - start >= budget) {
      *more = true;
      return 0;
    }
  }
}

}  // namespace baton
