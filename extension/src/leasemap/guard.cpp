// The guard. TRUNCATE is not MVCC-safe: to a snapshot from before it the segment looks empty, and a dump that lacks both a
// message and its effect has lost work. A transaction that a safe snapshot sees as over is kept in the metapage: the
// truncating one, or, where the horizon was waited for, the last settlement. Every reader that comes through the executor
// or COPY is checked here against its own snapshot, and LOCK TABLE in a REPEATABLE READ transaction too (pg_dump locks
// first and would otherwise find out only when it has copied half of the database). Our own verbs work below the executor
// and are not checked: to them a truncated segment is simply empty.
//
// Runs for every query of every table: nothing but two lookups in the system cache for relations that are not ours.
#include "guard.hpp"

#include "../pg/xid_status.hpp"
#include "../retained/tables.hpp"
#include "map.hpp"

namespace baton {
namespace {

ExecutorCheckPerms_hook_type previous_hook = nullptr;
bool schema_known = false;
Oid data_schema = InvalidOid;

void schema_changed(Datum, SyscacheNumber, uint32) { schema_known = false; }

bool is_segment(Oid relation) {
  if (!schema_known) {
    data_schema = get_namespace_oid("baton_data", true);
    schema_known = true;
  }
  return OidIsValid(data_schema) && get_rel_namespace(relation) == data_schema && get_rel_relkind(relation) == RELKIND_RELATION;
}

// A retained table has no map: its guard is in a table of notes, read as committed by now.
uint64 guard_of_retained(Oid relation) {
  int n = retained_number(relation);
  return n < 0 ? 0 : read_retained_note(n).guard_xid;
}

// Read by hand: the guard must not make a metapage, and must not fail where there is none.
uint64 guard_of(Oid relation) {
  Relation heap = try_relation_open(relation, AccessShareLock);
  if (!heap) return 0;
  uint64 guard = 0;
  Oid map_oid = find_map(heap);
  Relation map = OidIsValid(map_oid) ? try_relation_open(map_oid, AccessShareLock) : nullptr;
  if (map) {
    if (RelationGetNumberOfBlocks(map) > 0) {
      Buffer buf = ReadBuffer(map, kMetaBlock);
      LockBuffer(buf, BUFFER_LOCK_SHARE);
      Page page = BufferGetPage(buf);
      if (!PageIsNew(page) && map_meta(page)->magic == kMapMagic) guard = map_meta(page)->guard_xid;
      UnlockReleaseBuffer(buf);
    }
    relation_close(map, AccessShareLock);
  } else {
    guard = guard_of_retained(relation);
  }
  relation_close(heap, AccessShareLock);
  return guard;
}

bool snapshot_is_older(Snapshot snapshot, uint64 guard) {
  if (guard == 0 || !snapshot || snapshot->snapshot_type != SNAPSHOT_MVCC) return false;
  if (guard < full_xid_of(snapshot->xmin)) return false;
  // A standby's snapshots are not part of the horizon that the truncation waited for, and transactions need not end in
  // the order of their ids: whatever is not entirely after the guard may have seen a row.
  if (snapshot->takenDuringRecovery) return true;
  auto xid = static_cast<TransactionId>(guard);
  if (TransactionIdIsCurrentTransactionId(xid)) return false;
  return guard >= full_xid_of(snapshot->xmax) || XidInMVCCSnapshot(xid, snapshot);
}

bool check_permissions(BATON_CHECK_PERMS_PARAMS) {
  if (previous_hook && !previous_hook(BATON_CHECK_PERMS_ARGS)) return false;
  if (!ActiveSnapshotSet()) return true;
  ListCell* cell;
  foreach (cell, range_table) {
    auto* entry = static_cast<RangeTblEntry*>(lfirst(cell));
    if (entry->rtekind == RTE_RELATION && entry->relkind == RELKIND_RELATION) check_guard(entry->relid, GetActiveSnapshot());
  }
  return true;
}

}  // namespace

void check_guard(Oid relation, Snapshot snapshot) {
  if (!is_segment(relation) || !snapshot_is_older(snapshot, guard_of(relation))) return;
  ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                  errmsg("%s \"%s\" was reclaimed after this transaction's snapshot was taken", retained_number(relation) < 0 ? "segment" : "table",
                         get_rel_name(relation)),
                  retained_number(relation) < 0 ? errdetail("Messages that the snapshot should see are gone from it, settled since.")
                                                : errdetail("Retained messages that the snapshot should see are gone from it; their time is over."),
                  errhint("Start the transaction, or the dump, again.")));
}

void install_guard() {
  CacheRegisterSyscacheCallback(NAMESPACEOID, schema_changed, static_cast<Datum>(0));
  previous_hook = ExecutorCheckPerms_hook;
  ExecutorCheckPerms_hook = check_permissions;
}

}  // namespace baton
