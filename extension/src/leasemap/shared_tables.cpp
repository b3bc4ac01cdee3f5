// See shared_tables.hpp.
#include "shared_tables.hpp"

#include "../core/wheel.hpp"
#include "../pg/queue.hpp"

namespace baton {

SharedTable shared_table_of(Relation heap) {
  SharedTable t{SharedKind::kNone, 0};
  const char* name = RelationGetRelationName(heap);
  int n = 0;
  if (sscanf(name, "later_%d", &n) == 1 && n >= 0 && n < kWheelTables)
    t = SharedTable{SharedKind::kLater, n};
  else if (sscanf(name, "long_%d", &n) == 1 && n >= 0 && n < kLongTables)
    t = SharedTable{SharedKind::kLong, n};
  // While the extension is created or restored its schemas are there before anything that is in them.
  if (t.kind != SharedKind::kNone && RelationGetNamespace(heap) != baton_data_namespace()) t.kind = SharedKind::kNone;
  return t;
}

Oid shared_table_oid(SharedKind kind, int number) {
  char name[NAMEDATALEN];
  snprintf(name, sizeof(name), kind == SharedKind::kLater ? "later_%d" : "long_%d", number);
  return get_relname_relid(name, baton_data_namespace());
}

uint32 shared_lane(const SharedTable& table, int32 queue_id, int64 id, TimestampTz due) {
  if (table.kind == SharedKind::kLater) return wheel_lane(table.number, due);
  uint32 h = hash_combine(murmurhash32(static_cast<uint32>(queue_id)), murmurhash32(static_cast<uint32>(id)));
  return 1 + h % kLongLanes;
}

}  // namespace baton
