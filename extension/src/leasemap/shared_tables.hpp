// Tables that all queues of a database share, of the same kind as segments (rows of baton.message and a lease map):
// due-time buckets (later_<n>, core/wheel.hpp) and the long segments (long_<n>), to which live claims move that would
// hold back the rotation of their own. Their lanes have no hints in shared memory: what is in a bucket is found by the
// clock, what is in a long segment by its nonce. In their slots the key hash is the number of the queue.
#pragma once

#include "map.hpp"

namespace baton {

enum class SharedKind : uint8 { kNone, kLater, kLong };

struct SharedTable {
  SharedKind kind;
  int number;
};

constexpr int kLongTables = 2;
constexpr uint32 kLongLanes = 64;

// Which one a relation is, by its schema and name.
SharedTable shared_table_of(Relation heap);
// InvalidOid where the SQL of this database (before 0.2.0) has none.
Oid shared_table_oid(SharedKind kind, int number);
// The lane of a message's slot in such a table.
uint32 shared_lane(const SharedTable& table, int32 queue_id, int64 id, TimestampTz due);

}  // namespace baton
