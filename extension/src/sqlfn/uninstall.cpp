// Taking pg_baton out of a database: every queue of every owner, all data, the extension with its schemas. A function can
// drop the extension that it belongs to: its catalog row goes, the code that runs stays loaded. What must not happen
// afterwards is a look at our own tables.
#include "as_owner.hpp"

namespace baton {
namespace {

// One list out of the plan, "a, b, c and 4 more"; nullptr when it is empty.
const char* list_of(const char* item, const char* condition) {
  run(psprintf("SELECT pg_catalog.string_agg(s.item, ', ' ORDER BY s.n) FILTER (WHERE s.n <= 10)"
               " || CASE WHEN pg_catalog.count(*) > 10 THEN pg_catalog.format(' and %%s more', pg_catalog.count(*) - 10) ELSE '' END"
               " FROM (SELECT %s AS item, pg_catalog.row_number() OVER () AS n FROM baton_internal.uninstall_plan() p WHERE %s) s",
               item, condition));
  return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

void refuse_what_is_in_the_way(bool discard) {
  if (const char* dependents = list_of("p.kind || ' ' || p.object", "p.action = 'in the way'"))
    ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST), errmsg("cannot uninstall pg_baton because other objects need it"),
                    errdetail("In the way: %s.", dependents),
                    errhint("Drop them first; SELECT * FROM baton.uninstall() lists them and what they need.")));
  if (discard) return;
  const char* full =
      list_of("pg_catalog.format('%s (%s unsettled, %s quarantined, %s retained)', p.object, coalesce(p.unsettled::text, 'unknown'),"
              " p.quarantined, p.retained)",
              "p.kind <> 'extension' AND p.action = 'drop' AND (p.unsettled IS NULL OR p.unsettled > 0 OR p.quarantined > 0"
              " OR p.retained > 0)");
  if (full)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("cannot uninstall pg_baton while messages are in it"),
                    errdetail("Not empty: %s.", full),
                    errhint("Work them off, or give them up with SELECT * FROM baton.uninstall(dry_run => false, discard => true).")));
}

// Runs each statement that query returns in its first column.
void run_each(const char* query) {
  run(query);
  SPITupleTable* statements = SPI_tuptable;
  for (uint64 i = 0; i < statements->numvals; i++) {
    run(SPI_getvalue(statements->vals[i], statements->tupdesc, 1));
    SPI_freetuptable(SPI_tuptable);
  }
  SPI_freetuptable(statements);
}

// Nobody makes a queue or puts anything in until the end of the transaction, and no worker begins a step.
void lock_everything() {
  LockDatabaseObject(ExtensionRelationId, get_extension_oid("pg_baton", false), 0, AccessExclusiveLock);
  run("LOCK TABLE baton_internal.queue IN SHARE ROW EXCLUSIVE MODE");
  run_each("SELECT pg_catalog.format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', c.oid::regclass) FROM pg_catalog.pg_class c"
           " WHERE c.relnamespace = 'baton_data'::regnamespace AND c.relkind = 'r' ORDER BY c.relname");
}

void report(ReturnSetInfo* result, bool dropped) {
  run(psprintf("SELECT CASE WHEN p.action = 'drop' AND %s THEN 'dropped' ELSE p.action END, p.kind, p.object, p.unsettled,"
               " p.quarantined, p.retained, p.detail FROM baton_internal.uninstall_plan() p",
               dropped ? "true" : "false"));
  for (uint64 i = 0; i < SPI_processed; i++) tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
}

}  // namespace
}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_uninstall)
{
  bool dry_run = PG_ARGISNULL(0) || PG_GETARG_BOOL(0);
  bool discard = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
  if (!superuser() && !has_privs_of_role(GetUserId(), extension_owner()))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of extension \"pg_baton\" to uninstall it")));
  if (!dry_run) require_writable("uninstall");
  InitMaterializedSRF(fcinfo, 0);
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  Elevated e = become_extension_owner();
  if (!dry_run) {
    // Once without a lock, so that a refusal disturbs nobody, and once when no transaction can add any more.
    refuse_what_is_in_the_way(discard);
    lock_everything();
    refuse_what_is_in_the_way(discard);
  }
  report(result, !dry_run);
  if (!dry_run) {
    run_each("SELECT pg_catalog.format('SELECT baton.drop_queue(%L, discard => true)', q.name) FROM baton_internal.queue q ORDER BY q.id");
    run_each("SELECT pg_catalog.format('DROP %s %s', CASE c.relkind WHEN 'r' THEN 'TABLE' ELSE 'SEQUENCE' END, c.oid::regclass)"
             " FROM baton_internal.uninstall_plan() p JOIN pg_catalog.pg_class c ON c.oid = p.object::regclass"
             " WHERE p.action = 'drop' AND p.kind IN ('segment', 'sequence')");
    run("DROP EXTENSION pg_baton");
  }
  become_caller(e);
  return static_cast<Datum>(0);
}
