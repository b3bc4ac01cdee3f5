// Logging a change of a map page: a generic WAL record put together by hand. Its format (offset, length, bytes; repeated)
// is what generic_redo of every supported major replays, so neither crash recovery nor a standby needs this library.
#include "map.hpp"

namespace baton {
namespace {

// A backend logs one page at a time; the buffer must not be allocated in the critical section.
char record_buffer[BLCKSZ + kMaxFragments * 2 * sizeof(uint16)];

}  // namespace

void map_log_begin(Relation map) {
  // Raises on a standby, which is why it comes before the critical section.
  if (RelationNeedsWAL(map)) XLogBeginInsert();
}

XLogRecPtr map_log(Relation map, Buffer buf, const Fragment* fragments, int count) {
  MarkBufferDirty(buf);
  if (!RelationNeedsWAL(map)) return InvalidXLogRecPtr;
  Page page = BufferGetPage(buf);
  char* p = record_buffer;
  for (int i = 0; i < count; i++) {
    const Fragment& f = fragments[i];
    memcpy(p, &f.offset, sizeof(f.offset));
    p += sizeof(f.offset);
    memcpy(p, &f.length, sizeof(f.length));
    p += sizeof(f.length);
    memcpy(p, page + f.offset, f.length);
    p += f.length;
  }
  XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
  XLogRegisterBufData(0, record_buffer, static_cast<uint32>(p - record_buffer));
  XLogRecPtr lsn = XLogInsert(RM_GENERIC_ID, 0);
  PageSetLSN(page, lsn);
  return lsn;
}

}  // namespace baton
