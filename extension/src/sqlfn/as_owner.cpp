// See as_owner.hpp.
#include "as_owner.hpp"

#include "../leasemap/xact.hpp"

namespace baton {

Elevated become_extension_owner() {
  // A pause that was confirmed must not be undone by a crash, whatever the session has set.
  require_durability(Durability::kLocal);
  Elevated e;
  GetUserIdAndSecContext(&e.user, &e.security);
  SetUserIdAndSecContext(extension_owner(), e.security | SECURITY_LOCAL_USERID_CHANGE);
  e.guc_level = NewGUCNestLevel();
  const char* pinned[][2] = {
      {"search_path", "pg_catalog, pg_temp"}, {"default_tablespace", ""}, {"client_min_messages", "warning"}};
  for (auto& p : pinned)
    set_config_option(p[0], p[1], superuser() ? PGC_SUSET : PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                      false);
  if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "SPI_connect failed");
  return e;
}

void become_caller(const Elevated& e) {
  SPI_finish();
  AtEOXact_GUC(true, e.guc_level);
  SetUserIdAndSecContext(e.user, e.security);
}

void run(const char* sql) {
  int rc = SPI_execute(sql, false, 0);
  if (rc < 0) elog(ERROR, "%s: %s", SPI_result_code_string(rc), sql);
}

bool fetch_int64(const char* sql, int64* out) {
  run(sql);
  if (SPI_processed == 0) return false;
  bool null;
  Datum d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null);
  if (!null) *out = DatumGetInt64(d);
  return !null;
}

void run_with(const char* sql, int count, Oid* types, Datum* values) {
  int rc = SPI_execute_with_args(sql, count, types, values, nullptr, false, 0);
  if (rc < 0) elog(ERROR, "%s: %s", SPI_result_code_string(rc), sql);
}

}  // namespace baton
