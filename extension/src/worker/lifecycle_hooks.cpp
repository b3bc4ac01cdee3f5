// Hooks on commands and catalog changes that concern our workers and maps.
//
// Databases: before a command that needs a database without sessions (drop, rename, move, copy), our workers there leave,
// and none is started until the transaction of the command has ended, either way.
// Extensions: CREATE and DROP EXTENSION mark the database at commit, which may be a COMMIT PREPARED in another session.
// Maps: no second map on a table, no concurrent build, no DROP INDEX: refused in the transaction that would make the
// catalog entry, so that nothing is left behind. These checks need the preloaded library; pg_restore without it is fine.
//
// The callback at the end of a transaction allocates nothing and raises nothing: it sets atomics and latches.
#include "lifecycle_hooks.hpp"

#include "../leasemap/guard.hpp"
#include "../leasemap/map.hpp"
#include "../leasemap/reindex.hpp"
#include "launcher.hpp"
#include "worker_slot.hpp"

namespace baton {
namespace {

ProcessUtility_hook_type previous_utility_hook = nullptr;
object_access_hook_type previous_access_hook = nullptr;

// What this transaction has to say when it ends.
bool databases_changed = false;
bool extension_changed = false;
constexpr int kMostBlocked = 16;
Oid blocked[kMostBlocked];
int blocked_count = 0;

void transaction_ended(XactEvent event, void*) {
  switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
      break;
    default:
      return;
  }
  if (!databases_changed && !extension_changed && blocked_count == 0) return;
  if (extension_changed && event != XACT_EVENT_ABORT) {
    mark_database_changed(MyDatabaseId);
    nudge_workers(MyDatabaseId);
  }
  databases_changed = false;
  extension_changed = false;
  // The launcher is told first: it must not start a worker in a database of which it does not know yet that it is gone.
  wake_launcher();
  while (blocked_count > 0) unblock_database(blocked[--blocked_count]);
}

// ---- databases

bool is_blocked_by_me(Oid database) {
  for (int i = 0; i < blocked_count; i++)
    if (blocked[i] == database) return true;
  return false;
}

// For a command that cannot go on while our workers are connected. Only for those who may give it, or anybody could keep
// the workers of any database from working.
void clear_database(const char* name) {
  if (!shared || !name) return;
  Oid database = get_database_oid(name, true);
  if (!OidIsValid(database) || !database_owner_is_me(database)) return;
  // Beyond so many, all renamed in one transaction, a worker may come back too early, and the command says so.
  if (!is_blocked_by_me(database) && blocked_count < kMostBlocked) {
    block_database(database);
    blocked[blocked_count++] = database;
  }
  stop_workers(database);
}

bool has_option(List* options, const char* name, const char** value) {
  ListCell* cell;
  foreach (cell, options) {
    auto* option = static_cast<DefElem*>(lfirst(cell));
    if (strcmp(option->defname, name) != 0) continue;
    if (value) *value = option->arg ? defGetString(option) : nullptr;
    return true;
  }
  return false;
}

// Refused in a transaction block, all but RENAME; and in the database itself, all but the copy.
void before_database_command(Node* statement) {
  bool alone = !IsTransactionBlock();
  switch (nodeTag(statement)) {
    case T_DropdbStmt:
      if (alone) clear_database(reinterpret_cast<DropdbStmt*>(statement)->dbname);
      break;
    case T_CreatedbStmt: {
      const char* source = "template1";
      (void)has_option(reinterpret_cast<CreatedbStmt*>(statement)->options, "template", &source);
      if (alone) clear_database(source);
      break;
    }
    case T_AlterDatabaseStmt: {
      auto* alter = reinterpret_cast<AlterDatabaseStmt*>(statement);
      if (alone && has_option(alter->options, "tablespace", nullptr)) clear_database(alter->dbname);
      break;
    }
    case T_RenameStmt: {
      auto* rename = reinterpret_cast<RenameStmt*>(statement);
      if (rename->renameType != OBJECT_DATABASE) return;
      clear_database(rename->subname);
      break;
    }
    default:
      return;
  }
  databases_changed = true;
}

// ---- extensions

// CREATE EXTENSION may be prepared, and then its end calls none of our callbacks. One probe too many is cheap.
void after_commit_prepared() {
  if (!shared || worker_is_alive(MyDatabaseId, WorkerKind::kMover)) return;
  if (OidIsValid(get_extension_oid("pg_baton", true))) extension_changed = true;
}

bool is_commit_prepared(const Node* statement) {
  return IsA(statement, TransactionStmt) &&
         reinterpret_cast<const TransactionStmt*>(statement)->kind == TRANS_STMT_COMMIT_PREPARED;
}

// ---- maps

Oid access_method_of(Oid relation) {
  HeapTuple t = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
  if (!HeapTupleIsValid(t)) return InvalidOid;
  auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(t));
  Oid am = form->relkind == RELKIND_INDEX ? form->relam : InvalidOid;
  ReleaseSysCache(t);
  return am;
}

// A segment without its trigger is being taken apart: pg_restore --clean drops triggers, then indexes, then tables.
bool is_taken_apart(Oid map) {
  Oid heap = IndexGetRelation(map, true);
  return !OidIsValid(heap) || !OidIsValid(get_trigger_oid(heap, "refuse_update", true));
}

void refuse_drop_of_map(const DropStmt* drop) {
  Oid lease = lease_am_oid();
  if (!OidIsValid(lease)) return;
  ListCell* cell;
  foreach (cell, drop->objects) {
    RangeVar* name = makeRangeVarFromNameList(static_cast<List*>(lfirst(cell)));
    Oid relation = RangeVarGetRelid(name, NoLock, true);
    if (!OidIsValid(relation) || access_method_of(relation) != lease || is_taken_apart(relation)) continue;
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("cannot drop lease map \"%s\"", name->relname),
                    errdetail("It holds the delivery state of the messages in its segment."),
                    errhint("To get rid of the queue, use baton.drop_queue(); to rebuild the map, use REINDEX INDEX.")));
  }
}

Oid message_type() {
  Oid schema = get_namespace_oid("baton", true);
  if (!OidIsValid(schema)) return InvalidOid;
  return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, PointerGetDatum("message"), ObjectIdGetDatum(schema));
}

struct NewIndex {
  Oid heap;
  bool concurrent;
};

// The catalog entry of this very command is not visible to catalog snapshots yet.
bool read_new_index(Oid index, NewIndex* out) {
  Relation rel = table_open(IndexRelationId, AccessShareLock);
  ScanKeyData key;
  ScanKeyInit(&key, Anum_pg_index_indexrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(index));
  SysScanDesc scan = systable_beginscan(rel, IndexRelidIndexId, true, SnapshotSelf, 1, &key);
  HeapTuple t = systable_getnext(scan);
  bool found = HeapTupleIsValid(t);
  if (found) {
    auto* form = reinterpret_cast<Form_pg_index>(GETSTRUCT(t));
    out->heap = form->indrelid;
    out->concurrent = !form->indisready;
  }
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  return found;
}

bool is_new_map(Oid relation) {
  Oid lease = lease_am_oid();
  if (!OidIsValid(lease)) return false;
  // Made by this command and so in the relation cache, though not in the system cache.
  Relation rel = RelationIdGetRelation(relation);
  if (!RelationIsValid(rel)) return false;
  bool is = rel->rd_rel->relkind == RELKIND_INDEX && rel->rd_rel->relam == lease;
  RelationClose(rel);
  return is;
}

void check_new_map(Oid index) {
  if (!is_new_map(index)) return;
  NewIndex created;
  if (!read_new_index(index, &created)) return;
  if (created.concurrent)
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a lease map cannot be built concurrently"),
                    errdetail("Slots change in place; a copy would miss the changes made meanwhile."),
                    errhint("Use REINDEX INDEX without CONCURRENTLY: unsettled messages become ready again, old tokens are refused.")));
  Relation heap = table_open(created.heap, NoLock);
  if (heap->rd_rel->reloftype == InvalidOid || heap->rd_rel->reloftype != message_type())
    ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                    errmsg("\"%s\" cannot have a lease map: it is not a table of type baton.message", RelationGetRelationName(heap)),
                    errhint("Queues and their segments are made by baton.create_queue().")));
  Oid other = find_map(heap);
  if (OidIsValid(other) && other != index)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("segment \"%s\" already has a lease map, \"%s\"", RelationGetRelationName(heap), get_rel_name(other)),
                    errhint("A message has one slot: a second map would hand it out twice.")));
  table_close(heap, NoLock);
}

void object_accessed(ObjectAccessType access, Oid class_id, Oid object, int sub, void* argument) {
  if (previous_access_hook) previous_access_hook(access, class_id, object, sub, argument);
  if (sub != 0 || IsBootstrapProcessingMode()) return;
  if (access == OAT_POST_CREATE && class_id == RelationRelationId) {
    check_new_map(object);
  } else if (class_id == ExtensionRelationId && access == OAT_POST_CREATE) {
    // Its name cannot be looked up yet. One probe too many is cheap.
    extension_changed = true;
  } else if (class_id == ExtensionRelationId && access == OAT_DROP) {
    const char* name = get_extension_name(object);
    if (name && strcmp(name, "pg_baton") == 0) extension_changed = true;
  }
}

// A REPEATABLE READ transaction that locks a segment after it was truncated: pg_dump.
void check_locked(const LockStmt* lock) {
  if (!IsolationUsesXactSnapshot() || !FirstSnapshotSet) return;
  Snapshot snapshot = GetTransactionSnapshot();
  ListCell* cell;
  foreach (cell, lock->relations) {
    Oid relation = RangeVarGetRelid(static_cast<RangeVar*>(lfirst(cell)), NoLock, true);
    if (OidIsValid(relation)) check_guard(relation, snapshot);
  }
}

struct UtilityCall {
  const char* query;
  bool read_only_tree;
  ParamListInfo params;
  QueryEnvironment* environment;
  DestReceiver* destination;
};

void run_utility(PlannedStmt* planned, ProcessUtilityContext context, QueryCompletion* completion, const UtilityCall& c) {
  if (previous_utility_hook)
    previous_utility_hook(planned, c.query, c.read_only_tree, context, c.params, c.environment, c.destination, completion);
  else
    standard_ProcessUtility(planned, c.query, c.read_only_tree, context, c.params, c.environment, c.destination, completion);
}

void run_part(PlannedStmt* planned, ProcessUtilityContext context, void* call) {
  run_utility(planned, context, nullptr, *static_cast<UtilityCall*>(call));
}

void utility(PlannedStmt* planned, const char* query, bool read_only_tree, ProcessUtilityContext context, ParamListInfo params,
             QueryEnvironment* environment, DestReceiver* destination, QueryCompletion* completion) {
  Node* statement = planned->utilityStmt;
  before_database_command(statement);
  if (IsA(statement, DropStmt)) {
    auto* drop = reinterpret_cast<DropStmt*>(statement);
    if (drop->removeType == OBJECT_INDEX) refuse_drop_of_map(drop);
  }
  UtilityCall call = {query, read_only_tree, params, environment, destination};
  if (IsA(statement, ReindexStmt) && reindex_around_maps(planned, context, run_part, &call)) return;
  // The tree may be gone afterwards: COMMIT and its like free it.
  bool commit_prepared = is_commit_prepared(statement);
  const LockStmt* lock = IsA(statement, LockStmt) ? reinterpret_cast<LockStmt*>(statement) : nullptr;
  run_utility(planned, context, completion, call);
  if (lock) check_locked(lock);
  if (commit_prepared) after_commit_prepared();
}

}  // namespace

void install_lifecycle_hooks() {
  previous_utility_hook = ProcessUtility_hook;
  ProcessUtility_hook = utility;
  previous_access_hook = object_access_hook;
  object_access_hook = object_accessed;
  RegisterXactCallback(transaction_ended, nullptr);
  install_guard();
}

}  // namespace baton
