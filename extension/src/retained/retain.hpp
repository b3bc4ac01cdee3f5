// Keeping acknowledged messages: behind every way to acknowledge one.
#pragma once

#include "tables.hpp"

namespace baton {

// Copies the rows of slots that the current transaction has settled as acknowledged, at settled_at, into the retained table
// that they belong to. Call before the rows are deleted. A row that plain SQL has deleted is left out. Nothing is done for a
// queue without retention.
void retain_rows(const Queue* queue, Relation heap, const Slot* slots, int count, TimestampTz settled_at);

}  // namespace baton
