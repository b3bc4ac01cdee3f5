// See resolve.hpp.
#include "resolve.hpp"

#include "../pg/shmem.hpp"
#include "../pg/xid_status.hpp"
#include "row.hpp"

namespace baton {

bool push_snapshot_if_none() {
  if (ActiveSnapshotSet()) return false;
  PushActiveSnapshot(GetTransactionSnapshot());
  return true;
}

bool copy_slots(Relation map, BlockNumber block, int first, int count, BufferAccessStrategy strategy, PageCopy* out) {
  Buffer buf = ReadBufferExtended(map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  Page page = BufferGetPage(buf);
  bool ok = page_is_map_page(page);
  if (ok) {
    int used = map_slot_count(page);
    out->first = first;
    out->count = Max(0, Min(count, used - first));
    out->lane = map_tail(page)->lane;
    out->ordinal = map_tail(page)->ordinal;
    out->next = map_tail(page)->next;
    memcpy(out->slots, map_slots(page) + first, sizeof(Slot) * static_cast<Size>(out->count));
  }
  UnlockReleaseBuffer(buf);
  return ok;
}

bool row_is_live(Relation heap, const Slot& slot) {
  HeapTupleData tuple;
  tuple.t_self = slot_tid(slot);
  if (!ItemPointerIsValid(&tuple.t_self)) return false;
  Buffer buf;
  if (!fetch_heap_tuple(heap, SnapshotSelf, &tuple, &buf)) return false;
  bool isnull;
  bool same = DatumGetInt64(heap_getattr(&tuple, kRowId + 1, RelationGetDescr(heap), &isnull)) == slot.id && !isnull;
  ReleaseBuffer(buf);
  return same;
}

void resolve_copy(Relation heap, PageCopy* copy) {
  TimestampTz began = sessions_began();
  for (int i = 0; i < copy->count; i++) {
    Slot& r = copy->resolved[i];
    r = copy->slots[i];
    copy->changed[i] = false;
    copy->status[i] = XidStatus::kCommitted;
    if (!slot_has_open_xid(r)) {
      end_orphan(r, began);
      continue;
    }
    XidStatus status = xid_status(slot_xid(r));
    if (status == XidStatus::kTooOld && heap) {
      // The commit log has forgotten: the row is the truth. Live means the enqueue happened and the settlement did not.
      bool live = row_is_live(heap, r);
      bool settling = slot_state(r) == SlotState::kSettling;
      status = live != settling ? XidStatus::kCommitted : XidStatus::kAborted;
      // A release leaves its row alone, so the row cannot tell: its claim is over in any case.
      if (settling && releases(slot_kind(r))) status = XidStatus::kCommitted;
    }
    copy->status[i] = status;
    copy->changed[i] = resolve_slot(r, status);
    end_orphan(r, began);
  }
}

namespace {

// Bytes that resolve_slot may have changed.
int add_fragments(Fragment* f, int index, const Slot& before, const Slot& after) {
  int n = 0;
  uint16 at = slot_offset(index);
  f[n++] = Fragment{static_cast<uint16>(at + offsetof(Slot, state)), 2};
  if (before.failures != after.failures) f[n++] = Fragment{static_cast<uint16>(at + offsetof(Slot, failures)), 2};
  if (before.deadline != after.deadline || before.due_delta != after.due_delta)
    f[n++] = Fragment{static_cast<uint16>(at + offsetof(Slot, deadline)), sizeof(Slot) - offsetof(Slot, deadline)};
  return n;
}

}  // namespace

int write_resolved(Relation map, BlockNumber block, const PageCopy* copy) {
  bool any = false;
  for (int i = 0; i < copy->count; i++) any |= copy->changed[i];
  if (!any) return 0;
  Fragment fragments[kMaxFragments];
  int fragment_count = 0;
  int changes[kSlotsPerPage];
  int n = 0;
  Buffer buf = ReadBuffer(map, block);
  LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
  Slot* slots = map_slots(BufferGetPage(buf)) + copy->first;
  for (int i = 0; i < copy->count; i++) {
    if (!copy->changed[i] || memcmp(&slots[i], &copy->slots[i], sizeof(Slot)) != 0) continue;
    fragment_count += add_fragments(fragments + fragment_count, copy->first + i, copy->slots[i], copy->resolved[i]);
    changes[n++] = i;
  }
  if (n > 0) {
    // A settled flag reaches disk only after the commit it reports: the commit's record comes before ours in the log.
    map_log_begin(map);
    START_CRIT_SECTION();
    for (int i = 0; i < n; i++) slots[changes[i]] = copy->resolved[changes[i]];
    map_log(map, buf, fragments, fragment_count);
    END_CRIT_SECTION();
  }
  UnlockReleaseBuffer(buf);
  return n;
}

}  // namespace baton
