// See data_row.hpp.
#include "data_row.hpp"

namespace baton {

bool has_data_table(const char* table) { return OidIsValid(get_relname_relid(table, baton_data_namespace())); }

DataRow new_data_row(const char* table) {
  Oid oid = get_relname_relid(table, baton_data_namespace());
  if (!OidIsValid(oid)) elog(ERROR, "table baton_data.%s is missing", table);
  DataRow row;
  row.table = table_open(oid, RowExclusiveLock);
  auto columns = static_cast<Size>(RelationGetDescr(row.table)->natts);
  row.values = static_cast<Datum*>(palloc0(sizeof(Datum) * columns));
  row.nulls = static_cast<bool*>(palloc(columns));
  memset(row.nulls, true, columns);
  return row;
}

void set_column(DataRow* row, const char* column, Datum value, bool isnull) {
  AttrNumber n = get_attnum(RelationGetRelid(row->table), column);
  if (n <= 0) elog(ERROR, "column \"%s\" of \"%s\" is missing", column, RelationGetRelationName(row->table));
  row->values[n - 1] = value;
  row->nulls[n - 1] = isnull;
}

void insert_data_row(DataRow* row) {
  HeapTuple tuple = heap_form_tuple(RelationGetDescr(row->table), row->values, row->nulls);
  CatalogTupleInsert(row->table, tuple);
  heap_freetuple(tuple);
  pfree(row->values);
  pfree(row->nulls);
  table_close(row->table, NoLock);
}

}  // namespace baton
