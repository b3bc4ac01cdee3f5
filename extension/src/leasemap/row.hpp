// The message row: its columns by number, and what the map needs of it. A segment is a table OF baton.message.
#pragma once

#include "../core/lane.hpp"
#include "map.hpp"

namespace baton {

// Columns of baton.message, in order (sql/12_types.sql). Later versions append.
enum RowColumn : int {
  kRowId = 0,
  kRowEnqueuedAt,
  kRowNotBefore,
  kRowExpiresAt,
  kRowQueueId,
  kRowLane,
  kRowGeneration,
  kRowFailures,
  kRowPriority,
  kRowMessageId,
  kRowRoutingKey,
  kRowMessageClass,
  kRowPayloadRef,
  kRowHeaders,
  kRowPayload,
  kRowPayloadBytes,
  kRowColumns,
};

// Columns of the map: (id, lane, generation, failures, not_before, routing_key). The maps of shared tables have queue_id
// in the place of routing_key.
enum MapColumn : int { kMapId = 0, kMapLane, kMapGeneration, kMapFailures, kMapNotBefore, kMapRoutingKey, kMapColumns };

// Hash of a routing key, 0 for none. Part of the on-disk format.
inline uint32 routing_key_hash(const text* key) {
  auto* bytes = reinterpret_cast<const unsigned char*>(VARDATA_ANY(key));
  uint32 h = DatumGetUInt32(hash_any(bytes, static_cast<int>(VARSIZE_ANY_EXHDR(key))));
  return h == 0 ? 1 : h;
}

// When the message of this slot expires, by its row, whoever can see it; false: never, or the row is gone.
bool row_expires_at(Relation heap, const ItemPointerData& tid, int64 id, TimestampTz* at);
inline bool row_expires_at(Relation heap, const Slot& slot, TimestampTz* at) { return row_expires_at(heap, slot_tid(slot), slot.id, at); }

// Fills *s from index column values, and from the row what the map has no column for; returns the lane.
uint32 slot_from_index_values(Relation heap, const Datum* values, const bool* isnull, const ItemPointerData& tid, NewSlot* s);

// Number of the queue a segment belongs to, from its name q<id>_<n>; 0 if it is none.
int32 queue_id_of_segment(Relation heap);

IndexBuildResult* build_map(Relation heap, Relation map, IndexInfo* info);

}  // namespace baton
