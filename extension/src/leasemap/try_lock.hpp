// Locks for truncating a table, each taken conditionally: nobody is waited for.
#pragma once

#include "../pg/postgres.hpp"

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

}  // namespace baton
