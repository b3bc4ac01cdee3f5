// Locks for truncating a table, each taken conditionally: nobody is waited for.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

struct Locks {
  static constexpr int kMost = 32;
  Oid relations[kMost];
  int count;
};

// AccessExclusive on the table, its indexes, and its TOAST table with its index: all that TRUNCATE would otherwise wait for.
// False: not all were to be had; those that were are kept until unlock_all or the end of the transaction.
bool try_lock_table(Locks* l, Relation heap);
void unlock_all(Locks* l);

// Truncates a table so locked, as its owner. Not sent to logical subscribers.
void truncate_as_owner(Relation heap);

// RowExclusive on every segment of a queue, or every long segment, and their indexes, to the end of the transaction: for
// those who write there and must not wait. False: not all were to be had.
bool try_lock_queue_for_writing(const Queue& queue);
bool try_lock_long_for_writing();

}  // namespace baton
