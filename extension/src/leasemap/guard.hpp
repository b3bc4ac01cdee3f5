// The guard of a truncated segment: a reader whose snapshot is older than the truncation gets 40001.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

void install_guard();
// Raises 40001 if the relation is a segment that was truncated after the snapshot was taken. The relation is locked.
void check_guard(Oid relation, Snapshot snapshot);

}  // namespace baton
