// A row of one of the extension's own tables in schema baton_data, put in below the caller's privileges and without SPI:
// what the caller may do has been decided before. Indexes are kept up; triggers are not run, defaults not filled in.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

struct DataRow {
  Relation table;
  Datum* values;
  bool* nulls;  // null until set
};

// Is the table there? One that came with a later version of the SQL may not be.
bool has_data_table(const char* table);
DataRow new_data_row(const char* table);
void set_column(DataRow* row, const char* column, Datum value, bool isnull = false);
void insert_data_row(DataRow* row);  // keeps the table's lock to the end of the transaction

}  // namespace baton
