// A map cannot be built beside itself: slots change in place, and a copy would miss the changes made meanwhile. So REINDEX
// INDEX CONCURRENTLY of a map is an error (worker/lifecycle_hooks.cpp). But REINDEX DATABASE CONCURRENTLY is a cron job, and
// must not stop at the first segment with half of the user's indexes untouched: tables with a map are passed over with a
// WARNING, as the server does with exclusion constraints. It knows no hook for that; so here the command for a whole database
// or schema becomes one command for each of its other tables, each in transactions of its own, as in the server's own loop.
#include "reindex.hpp"

#include "map.hpp"

namespace baton {
namespace {

bool is_concurrent(const ReindexStmt* reindex) {
  ListCell* cell;
  foreach (cell, reindex->params) {
    auto* option = static_cast<DefElem*>(lfirst(cell));
    if (strcmp(option->defname, "concurrently") == 0) return defGetBoolean(option);
  }
  return false;
}

bool has_map(Oid table) {
  Relation rel = try_relation_open(table, AccessShareLock);
  if (rel == nullptr) return false;
  bool has = (rel->rd_rel->relkind == RELKIND_RELATION) && OidIsValid(find_map(rel));
  relation_close(rel, AccessShareLock);
  return has;
}

void warn(const char* what) {
  ereport(WARNING, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot reindex lease maps concurrently, skipping %s", what),
                    errhint("They need no REINDEX. Without CONCURRENTLY, unsettled messages become ready again and old tokens are refused.")));
}

// Tables and materialized views of the schema, of all schemas if it is InvalidOid. Catalogs are left out, as the server does.
List* tables_of(Oid schema) {
  List* tables = NIL;
  Relation rel = table_open(RelationRelationId, AccessShareLock);
  SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
  while (HeapTuple t = systable_getnext(scan)) {
    auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(t));
    if (form->relkind != RELKIND_RELATION && form->relkind != RELKIND_MATVIEW) continue;
    if (OidIsValid(schema) && form->relnamespace != schema) continue;
    if (form->relpersistence == RELPERSISTENCE_TEMP && !isTempNamespace(form->relnamespace)) continue;
    if (IsCatalogRelationOid(form->oid) || (!form->relhasindex && !OidIsValid(form->reltoastrelid))) continue;
    tables = lappend_oid(tables, form->oid);
  }
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  return tables;
}

void reindex_one(Oid table, const PlannedStmt* planned, RunUtility run, void* arg) {
  char* name = get_rel_name(table);
  char* schema = name ? get_namespace_name(get_rel_namespace(table)) : nullptr;
  if (schema == nullptr || has_map(table)) return;
  auto* reindex = makeNode(ReindexStmt);
  reindex->kind = REINDEX_OBJECT_TABLE;
  reindex->relation = makeRangeVar(schema, name, -1);
  reindex->params = reinterpret_cast<const ReindexStmt*>(planned->utilityStmt)->params;
  auto* one = makeNode(PlannedStmt);
  one->commandType = CMD_UTILITY;
  one->utilityStmt = reinterpret_cast<Node*>(reindex);
  one->stmt_location = planned->stmt_location;
  one->stmt_len = planned->stmt_len;
  run(one, PROCESS_UTILITY_TOPLEVEL, arg);
}

void reindex_many(Oid schema, PlannedStmt* planned, RunUtility run, void* arg) {
  MemoryContext own = AllocSetContextCreate(PortalContext, "pg_baton reindex", ALLOCSET_SMALL_SIZES);
  MemoryContext before = MemoryContextSwitchTo(own);
  List* tables = tables_of(schema);
  MemoryContextSwitchTo(before);
  if (!OidIsValid(schema))
    ereport(WARNING, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot reindex system catalogs concurrently, skipping all")));
  warn("all tables that have one");
  PopActiveSnapshot();
  CommitTransactionCommand();
  ListCell* cell;
  foreach (cell, tables) {
    StartTransactionCommand();
    PushActiveSnapshot(GetTransactionSnapshot());
    // What the command allocates has to outlive the transactions that it ends.
    MemoryContextSwitchTo(own);
    reindex_one(lfirst_oid(cell), planned, run, arg);
    // A concurrent build has ended the transaction and the snapshot that it began with.
    if (ActiveSnapshotSet()) PopActiveSnapshot();
    CommitTransactionCommand();
  }
  StartTransactionCommand();
  MemoryContextDelete(own);
}

}  // namespace

bool reindex_around_maps(PlannedStmt* planned, ProcessUtilityContext context, RunUtility run, void* arg) {
  auto* reindex = reinterpret_cast<ReindexStmt*>(planned->utilityStmt);
  if (!is_concurrent(reindex) || !OidIsValid(lease_am_oid())) return false;
  bool top_level = context == PROCESS_UTILITY_TOPLEVEL;
  if (reindex->kind == REINDEX_OBJECT_TABLE) {
    Oid table = RangeVarGetRelid(reindex->relation, NoLock, true);
    if (!OidIsValid(table) || !has_map(table) || !object_owner_is_me(RelationRelationId, table)) return false;
    PreventInTransactionBlock(top_level, "REINDEX TABLE CONCURRENTLY");
    warn(psprintf("table \"%s\"", reindex->relation->relname));
    return true;
  }
  // Whoever may reindex a whole database, and not each of its tables by himself, is left to the server.
  if (!superuser()) return false;
  if (reindex->kind == REINDEX_OBJECT_DATABASE) {
    if (reindex->name && get_database_oid(reindex->name, true) != MyDatabaseId) return false;
    PreventInTransactionBlock(top_level, "REINDEX DATABASE");
    reindex_many(InvalidOid, planned, run, arg);
    return true;
  }
  Oid data = get_namespace_oid("baton_data", true);
  if (reindex->kind != REINDEX_OBJECT_SCHEMA || !OidIsValid(data) || get_namespace_oid(reindex->name, true) != data) return false;
  PreventInTransactionBlock(top_level, "REINDEX SCHEMA");
  reindex_many(data, planned, run, arg);
  return true;
}

}  // namespace baton
