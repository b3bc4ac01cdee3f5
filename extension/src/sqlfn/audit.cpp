// See audit.hpp.
#include "audit.hpp"

#include "../pg/clock.hpp"
#include "data_row.hpp"

namespace baton {
namespace {

Datum role_name(Oid role) { return CStringGetTextDatum(GetUserNameFromId(role, false)); }

}  // namespace

void write_audit(const AuditEntry& entry) {
  if (!has_data_table("audit")) return;
  DataRow row = new_data_row("audit");
  set_column(&row, "at", TimestampTzGetDatum(clock_now()));
  set_column(&row, "actor", role_name(GetSessionUserId()));
  set_column(&row, "acting_as", role_name(GetUserId()));
  set_column(&row, "action", CStringGetTextDatum(entry.action));
  if (entry.queue) {
    set_column(&row, "queue_id", Int32GetDatum(entry.queue->id));
    set_column(&row, "queue", CStringGetTextDatum(entry.queue->name));
  }
  if (entry.affected >= 0) set_column(&row, "affected", Int64GetDatum(entry.affected));
  if (entry.reason) set_column(&row, "reason", PointerGetDatum(entry.reason));
  if (entry.details) set_column(&row, "details", DirectFunctionCall1(jsonb_in, CStringGetDatum(entry.details)));
  insert_data_row(&row);
}

}  // namespace baton

// Keeps the audit as it was written, whoever asks.
BATON_SQL_FUNCTION(baton_refuse_change) {
  const char* table = CALLED_AS_TRIGGER(fcinfo) ? RelationGetRelationName(reinterpret_cast<TriggerData*>(fcinfo->context)->tg_relation) : "";
  ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("rows of \"%s\" are never changed or removed", table),
                  errhint("It is an audit: rows are only added.")));
  pg_unreachable();
}
