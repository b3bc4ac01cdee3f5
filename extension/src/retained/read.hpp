// Reading the retained tables, through the executor and as the extension's owner: who may read what is decided before.
#pragma once

#include "tables.hpp"

namespace baton {

// Which messages of a queue. Null and false: any.
struct RetainedFilter {
  int32 queue_id;
  bool has_from;
  TimestampTz from;   // settled at or after
  bool has_until;
  TimestampTz until;  // settled before
  text* message_class;
  text* routing_key;
  bool has_ids;
  Datum ids;  // bigint[]
};

// Between become_extension_owner and become_caller: opens a cursor on "SELECT columns FROM the tables r WHERE filter tail".
// nullptr if every table is empty. By the caller's snapshot.
Portal open_retained(const RetainedFilter& filter, const char* columns, const char* tail);

// Messages of the queue whose time is not over, as far as the snapshot sees them.
int64 count_retained(int32 queue_id);

}  // namespace baton
