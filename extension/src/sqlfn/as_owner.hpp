// Acting as the extension's owner, through SPI, with search_path pinned: nothing the caller can plant is looked up.
// Decide by the caller's own rights first. On an error the abort of the (sub)transaction restores user, settings and
// SPI.
#pragma once

#include "../pg/queue.hpp"

namespace baton {

struct Elevated {
  Oid user;
  int security;
  int guc_level;
};

Elevated become_extension_owner();
void become_caller(const Elevated& e);

// Between the two. Raise on any error.
void run(const char* sql);
void run_with(const char* sql, int count, Oid* types, Datum* values);
// First column of the first row; false for no row or a null.
bool fetch_int64(const char* sql, int64* out);

}  // namespace baton
