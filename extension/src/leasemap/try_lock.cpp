// See try_lock.hpp.
#include "try_lock.hpp"

#include "shared_tables.hpp"

namespace baton {
namespace {

bool try_lock(Locks* l, Oid relation) {
  if (l->count == Locks::kMost || !ConditionalLockRelationOid(relation, AccessExclusiveLock)) return false;
  l->relations[l->count++] = relation;
  return true;
}

bool try_lock_indexes(Locks* l, Relation table) {
  List* indexes = RelationGetIndexList(table);
  bool ok = true;
  ListCell* cell;
  foreach (cell, indexes) {
    ok = try_lock(l, lfirst_oid(cell));
    if (!ok) break;
  }
  list_free(indexes);
  return ok;
}

bool try_lock_for_writing(Oid table) {
  if (!OidIsValid(table) || !ConditionalLockRelationOid(table, RowExclusiveLock)) return false;
  Relation heap = try_relation_open(table, NoLock);
  if (!heap) return false;
  List* indexes = RelationGetIndexList(heap);
  bool ok = true;
  ListCell* cell;
  foreach (cell, indexes) ok = ok && ConditionalLockRelationOid(lfirst_oid(cell), RowExclusiveLock);
  list_free(indexes);
  relation_close(heap, NoLock);
  return ok;
}

}  // namespace

bool try_lock_table(Locks* l, Relation heap) {
  if (!try_lock(l, RelationGetRelid(heap)) || !try_lock_indexes(l, heap)) return false;
  Oid toast_oid = heap->rd_rel->reltoastrelid;
  if (!OidIsValid(toast_oid)) return true;
  if (!try_lock(l, toast_oid)) return false;
  Relation toast = try_relation_open(toast_oid, NoLock);
  if (!toast) return false;
  bool ok = try_lock_indexes(l, toast);
  relation_close(toast, NoLock);
  return ok;
}

void unlock_all(Locks* l) {
  while (l->count > 0) UnlockRelationOid(l->relations[--l->count], AccessExclusiveLock);
}

bool try_lock_queue_for_writing(const Queue& queue) {
  for (int i = 0; i < queue.segment_count; i++)
    if (!try_lock_for_writing(queue.heap[i])) return false;
  return true;
}

bool try_lock_long_for_writing() {
  for (int i = 0; i < kLongTables; i++)
    if (!try_lock_for_writing(shared_table_oid(SharedKind::kLong, i))) return false;
  return true;
}

void truncate_as_owner(Relation heap) {
  Oid user;
  int security;
  GetUserIdAndSecContext(&user, &security);
  int guc_level = NewGUCNestLevel();
  SetUserIdAndSecContext(heap->rd_rel->relowner, security | SECURITY_RESTRICTED_OPERATION);
  truncate_table(heap);
  AtEOXact_GUC(false, guc_level);
  SetUserIdAndSecContext(user, security);
  CommandCounterIncrement();
}

}  // namespace baton
