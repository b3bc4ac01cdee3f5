// See read.hpp. The statement names only tables that are not empty: planning all of them would cost more than most reads.
// An empty one is asked for its guard here, as the executor asks the others: it may have been truncated under this snapshot.
#include "read.hpp"

#include "../leasemap/guard.hpp"
#include "../pg/clock.hpp"

namespace baton {
namespace {

// Keeps the lock on a table that has rows: it is not truncated before the statement comes to it.
bool has_rows(Oid oid) {
  Relation table = OidIsValid(oid) ? try_relation_open(oid, AccessShareLock) : nullptr;
  if (!table) return false;
  bool any = RelationGetNumberOfBlocks(table) > 0;
  if (!any) check_guard(oid, GetActiveSnapshot());
  relation_close(table, any ? NoLock : AccessShareLock);
  return any;
}

void add_tables(StringInfo s) {
  const char* join = "";
  for (int n = 0; n < kRetainedTables; n++) {
    if (!has_rows(retained_table_oid(n))) continue;
    appendStringInfo(s, "%sSELECT * FROM baton_data.retained_%d", join, n);
    join = " UNION ALL ";
  }
}

// The planner has no statistics of these tables and would not trust their index.
void prefer_index() {
  constexpr const char* kSettings[] = {"enable_seqscan", "jit"};
  for (const char* setting : kSettings)
    set_config_option(setting, "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

// The least and the greatest of the ids: the index knows ranges, not lists. False: there is none.
bool ends_of(Datum ids, int64* low, int64* high) {
  int16 length;
  bool by_value;
  char alignment;
  get_typlenbyvalalign(INT8OID, &length, &by_value, &alignment);
  Datum* values;
  bool* nulls;
  int n;
  deconstruct_array(DatumGetArrayTypeP(ids), INT8OID, length, by_value, alignment, &values, &nulls, &n);
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (nulls[i]) continue;
    int64 id = DatumGetInt64(values[i]);
    *low = any ? Min(*low, id) : id;
    *high = any ? Max(*high, id) : id;
    any = true;
  }
  return any;
}

}  // namespace

Portal open_retained(const RetainedFilter& filter, const char* columns, const char* tail) {
  StringInfoData tables;
  initStringInfo(&tables);
  add_tables(&tables);
  if (tables.len == 0) return nullptr;
  StringInfoData s;
  initStringInfo(&s);
  appendStringInfo(&s, "SELECT %s FROM (%s) r WHERE r.queue_id = $1", columns, tables.data);
  Oid types[] = {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, INT8ARRAYOID, TIMESTAMPTZOID};
  Datum values[] = {Int32GetDatum(filter.queue_id),          TimestampTzGetDatum(filter.from),
                    TimestampTzGetDatum(filter.until),       PointerGetDatum(filter.message_class),
                    PointerGetDatum(filter.routing_key),     filter.ids,
                    TimestampTzGetDatum(clock_now())};
  constexpr int kCount = sizeof(types) / sizeof(types[0]);
  char nulls[kCount + 1] = "       ";
  if (filter.has_from) appendStringInfoString(&s, " AND r.settled_at >= $2");
  if (filter.has_until) appendStringInfoString(&s, " AND r.settled_at < $3");
  if (filter.message_class)
    appendStringInfoString(&s, " AND r.message_class = $4");
  else
    nulls[3] = 'n';
  if (filter.routing_key)
    appendStringInfoString(&s, " AND r.routing_key = $5");
  else
    nulls[4] = 'n';
  int64 low;
  int64 high;
  if (!filter.has_ids)
    nulls[5] = 'n';
  else if (ends_of(filter.ids, &low, &high))
    appendStringInfo(&s, " AND r.id = ANY ($6) AND r.id BETWEEN " INT64_FORMAT " AND " INT64_FORMAT, low, high);
  else
    appendStringInfoString(&s, " AND false");
  appendStringInfo(&s, " %s", tail);
  prefer_index();
  return SPI_cursor_open_with_args(nullptr, s.data, kCount, types, values, nulls, true, 0);
}

int64 count_retained(int32 queue_id) {
  RetainedFilter filter;
  memset(&filter, 0, sizeof(filter));
  filter.queue_id = queue_id;
  Portal cursor = open_retained(filter, "pg_catalog.count(*)", "AND r.drop_at > $7");
  if (!cursor) return 0;
  SPI_cursor_fetch(cursor, true, 1);
  bool isnull;
  int64 n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
  SPI_cursor_close(cursor);
  return n;
}

}  // namespace baton
