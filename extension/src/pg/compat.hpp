// Every difference between PostgreSQL majors lives here. Supported: 15 to 19.
#pragma once

#if PG_VERSION_NUM < 150000
#error "pg_baton needs PostgreSQL 15 or later"
#endif

extern "C" {
#if PG_VERSION_NUM >= 180000
#include "storage/bufmgr.h"
#endif
#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#include "utils/guc_hooks.h"
#include "varatt.h"
#endif
}

namespace baton {

#if PG_VERSION_NUM >= 160000
using RelNumber = RelFileNumber;
inline RelNumber rel_number(Relation rel) { return rel->rd_locator.relNumber; }
#else
using RelNumber = Oid;
inline RelNumber rel_number(Relation rel) { return rel->rd_node.relNode; }
#endif

// What a callback on invalidations gets as the cache's number, and how a buffer is to be locked: enums from 19 on.
#if PG_VERSION_NUM >= 190000
using SyscacheNumber = SysCacheIdentifier;
using BufferLock = BufferLockMode;
#else
using SyscacheNumber = int;
using BufferLock = int;
#endif

// Oldest transaction id the commit log can still answer for. Caller holds XactTruncationLock.
inline TransactionId oldest_clog_xid() {
#if PG_VERSION_NUM >= 170000
  return TransamVariables->oldestClogXid;
#else
  return ShmemVariableCache->oldestClogXid;
#endif
}

// A new block at the end of rel, exclusively locked, in the main fork. Serialised by the relation extension lock.
inline Buffer extend_relation(Relation rel) {
#if PG_VERSION_NUM >= 160000
  return ExtendBufferedRel(BMR_REL(rel), MAIN_FORKNUM, nullptr, EB_LOCK_FIRST);
#else
  LockRelationForExtension(rel, ExclusiveLock);
  Buffer buf = ReadBuffer(rel, P_NEW);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  UnlockRelationForExtension(rel, ExclusiveLock);
  return buf;
#endif
}

// Number of this process in the array of all processes; stable for its life.
inline int my_proc_number() {
#if PG_VERSION_NUM >= 170000
  return MyProcNumber;
#else
  return MyProc->pgprocno;
#endif
}

// Wakes the process with that number. Harmless when it has gone.
inline void set_proc_latch(int proc_number) { SetLatch(&ProcGlobal->allProcs[proc_number].procLatch); }

inline bool object_owner_is_me(Oid class_id, Oid object_id) {
#if PG_VERSION_NUM >= 160000
  return object_ownercheck(class_id, object_id, GetUserId());
#else
  return class_id == RelationRelationId ? pg_class_ownercheck(object_id, GetUserId())
                                        : pg_namespace_ownercheck(object_id, GetUserId());
#endif
}

inline AclResult namespace_aclcheck(Oid namespace_id, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
  return object_aclcheck(NamespaceRelationId, namespace_id, role, mode);
#else
  return pg_namespace_aclcheck(namespace_id, role, mode);
#endif
}

// Fetches the row version at tuple->t_self if the snapshot sees it; the caller releases *buf.
inline bool fetch_heap_tuple(Relation heap, Snapshot snapshot, HeapTuple tuple, Buffer* buf) {
  return heap_fetch(heap, snapshot, tuple, buf, false);
}

// To be called on every descriptor put together by hand, once its columns are there.
inline TupleDesc finish_descriptor(TupleDesc desc) {
#if PG_VERSION_NUM >= 190000
  TupleDescFinalize(desc);
#endif
  return desc;
}

inline TableScanDesc begin_heap_scan(Relation heap, Snapshot snapshot) {
#if PG_VERSION_NUM >= 190000
  return table_beginscan(heap, snapshot, 0, nullptr, SO_NONE);
#else
  return table_beginscan(heap, snapshot, 0, nullptr);
#endif
}

// Deletes a row version; waits for a plain SQL lock on it, or says TM_WouldBlock or TM_BeingModified.
inline TM_Result delete_heap_tuple(Relation heap, ItemPointer tid, CommandId cid, TM_FailureData* failure, bool wait) {
#if PG_VERSION_NUM >= 190000
  return heap_delete(heap, tid, cid, 0, InvalidSnapshot, wait, failure);
#else
  return heap_delete(heap, tid, cid, InvalidSnapshot, wait, failure, false);
#endif
}

// Where an index access method's routine lives: the server frees it before 19 and never does from 19 on.
inline IndexAmRoutine* new_index_am_routine() {
#if PG_VERSION_NUM >= 190000
  static IndexAmRoutine routine;
  return &routine;
#else
  return makeNode(IndexAmRoutine);
#endif
}

inline void baton_vacuum_delay() {
#if PG_VERSION_NUM >= 180000
  vacuum_delay_point(false);
#else
  vacuum_delay_point();
#endif
}

inline bool database_owner_is_me(Oid database) {
#if PG_VERSION_NUM >= 160000
  return object_ownercheck(DatabaseRelationId, database, GetUserId());
#else
  return pg_database_ownercheck(database, GetUserId());
#endif
}

// Truncates a table that the caller has locked exclusively and checked. Not sent to logical subscribers.
inline void truncate_table(Relation heap) {
  List* rels = list_make1(heap);
  List* oids = list_make1_oid(RelationGetRelid(heap));
#if PG_VERSION_NUM >= 160000
  ExecuteTruncateGuts(rels, oids, NIL, DROP_RESTRICT, false, false);
#else
  ExecuteTruncateGuts(rels, oids, NIL, DROP_RESTRICT, false);
#endif
}

// After the last of several index_insert calls with one IndexInfo.
inline void finish_index_inserts(Relation index, IndexInfo* info) {
#if PG_VERSION_NUM >= 170000
  index_insert_cleanup(index, info);
#else
  (void)index;
  (void)info;
#endif
}

// Parameters and arguments of ExecutorCheckPerms_hook.
#if PG_VERSION_NUM >= 160000
#define BATON_CHECK_PERMS_PARAMS List *range_table, List *permission_infos, bool raise
#define BATON_CHECK_PERMS_ARGS range_table, permission_infos, raise
#else
#define BATON_CHECK_PERMS_PARAMS List *range_table, bool raise
#define BATON_CHECK_PERMS_ARGS range_table, raise
#endif

// A setting that would end transactions of ours.
constexpr bool kHasTransactionTimeout = PG_VERSION_NUM >= 170000;

inline void ignore_signal(int signal_number) {
#if PG_VERSION_NUM >= 190000
  pqsignal(signal_number, PG_SIG_IGN);
#else
  pqsignal(signal_number, SIG_IGN);
#endif
}

// Wait event shown while one of our processes sleeps.
inline uint32 wait_event(const char* name) {
#if PG_VERSION_NUM >= 170000
  return WaitEventExtensionNew(name);
#else
  (void)name;
  return PG_WAIT_EXTENSION;
#endif
}

}  // namespace baton
