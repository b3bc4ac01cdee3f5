// See xid_status.hpp.
#include "xid_status.hpp"

namespace baton {

uint64 full_xid_of(TransactionId xid) {
  FullTransactionId next = ReadNextFullTransactionId();
  uint32 epoch = EpochFromFullTransactionId(next);
  // A live xid numerically above the next one was given out before the counter wrapped.
  if (xid > XidFromFullTransactionId(next)) epoch--;
  return (static_cast<uint64>(epoch) << 32) | xid;
}

uint64 current_full_xid() { return full_xid_of(GetCurrentTransactionId()); }

XidStatus xid_status(uint64 full_xid) {
  auto xid = static_cast<TransactionId>(full_xid);
  if (!TransactionIdIsNormal(xid)) return full_xid == 0 ? XidStatus::kAborted : XidStatus::kCommitted;
  uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
  // From before this cluster's counter (a crash of an unlogged map, a page from elsewhere): nothing can have committed.
  if (full_xid >= next) return XidStatus::kAborted;
  if (next - full_xid > (uint64{1} << 31)) return XidStatus::kTooOld;
  if (TransactionIdIsCurrentTransactionId(xid)) return XidStatus::kMine;
  if (TransactionIdIsInProgress(xid)) return XidStatus::kInProgress;
  // Ids at or after our own horizon cannot leave the commit log while we hold it; for older ones we keep the log from
  // being cut off between the question whether it still answers and the answer.
  if (TransactionIdIsNormal(TransactionXmin) && TransactionIdFollowsOrEquals(xid, TransactionXmin))
    return TransactionIdDidCommit(xid) ? XidStatus::kCommitted : XidStatus::kAborted;
  LWLockAcquire(XactTruncationLock, LW_SHARED);
  XidStatus status;
  if (TransactionIdPrecedes(xid, oldest_clog_xid()))
    status = XidStatus::kTooOld;
  else
    status = TransactionIdDidCommit(xid) ? XidStatus::kCommitted : XidStatus::kAborted;
  LWLockRelease(XactTruncationLock);
  return status;
}

}  // namespace baton
