// See find.hpp. Pages are copied as they are, which is faster than to walk through them under their lock; only a slot that has
// the id is looked at closely.
#include "find.hpp"

#include "../core/backoff.hpp"
#include "../core/wheel.hpp"
#include "resolve.hpp"
#include "row.hpp"
#include "shared_tables.hpp"

namespace baton {
namespace {

constexpr int kAround = 32;   // pages to each side of where bisection ends: writers of batches overtake one another
constexpr int kAttempts = 4;  // bisections by different pages: one that holds moved messages leads astray

struct Search {
  int64 id;
  uint32 queue_id;  // in the key hash of a shared table's slots; 0: the segment is the queue's own
  FoundMessage* out;
  PGAlignedBlock* page;
  bool found;       // any slot
  bool unsettled;   // one that counts
};

// One slot that has the id.
void look_closely(Search* s, const Segment& segment, BlockNumber block, int index) {
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  if (copy_slots(segment.map, block, index, 1, nullptr, copy) && copy->count == 1) {
    resolve_copy(segment.heap, copy);
    const Slot& slot = copy->resolved[0];
    bool unsettled = slot_is_unsettled(slot);
    // Of settled ones the last is as good as any.
    if (slot.id == s->id && (unsettled || !s->unsettled)) {
      *s->out = FoundMessage{RelationGetRelid(segment.heap), Place{block, static_cast<uint8>(index)}, slot, copy->status[0]};
      s->found = true;
      s->unsettled = unsettled;
    }
  }
  pfree(copy);
}

// Looks at one page. *next: the lane's next page; *highest: the highest id on the page, 0 if it has none.
void look_at_page(Search* s, const Segment& segment, BlockNumber block, BufferAccessStrategy strategy, BlockNumber* next, int64* highest) {
  int hits[kSlotsPerPage];
  int n = 0;
  int64 most = 0;
  *next = InvalidBlockNumber;
  Buffer buf = ReadBufferExtended(segment.map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
  LockBuffer(buf, BUFFER_LOCK_SHARE);
  memcpy(s->page->data, BufferGetPage(buf), BLCKSZ);
  UnlockReleaseBuffer(buf);
  Page page = s->page->data;
  if (page_is_map_page(page)) {
    const Slot* slots = map_slots(page);
    int used = map_slot_count(page);
    for (int i = 0; i < used; i++) {
      if (slots[i].id > most) most = slots[i].id;
      if (slots[i].id == s->id && slot_state(slots[i]) != SlotState::kEmpty && (s->queue_id == 0 || slots[i].key_hash == s->queue_id)) hits[n++] = i;
    }
    *next = map_tail(page)->next;
  }
  if (highest) *highest = most;
  for (int k = 0; k < n && !s->unsettled; k++) look_closely(s, segment, block, hits[k]);
}

// ---- the queue's own segments

// The first page whose highest id is not below the one looked for, if all pages are in order.
BlockNumber bisect(Search* s, const Segment& segment, BlockNumber blocks, int attempt) {
  BlockNumber low = kMetaBlock + 1;
  BlockNumber high = blocks;
  while (low < high && !s->unsettled) {
    BlockNumber width = high - low;
    BlockNumber middle = low + width / 2;
    if (attempt > 0 && width > 8) middle = low + width / 4 + static_cast<BlockNumber>(scatter(low, high + static_cast<uint32>(attempt)) % (width / 2));
    BlockNumber next;
    int64 highest;
    look_at_page(s, segment, middle, nullptr, &next, &highest);
    if (highest < s->id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void search_around(Search* s, const Segment& segment, BlockNumber blocks, BlockNumber middle) {
  BlockNumber from = middle > kMetaBlock + 1 + kAround ? middle - kAround : kMetaBlock + 1;
  for (BlockNumber b = from; b < blocks && b <= middle + kAround && !s->unsettled; b++) {
    BlockNumber next;
    look_at_page(s, segment, b, nullptr, &next, nullptr);
  }
}

void search_near(Search* s, const Segment& segment) {
  BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
  BlockNumber done = InvalidBlockNumber;
  for (int attempt = 0; attempt < kAttempts && !s->unsettled; attempt++) {
    BlockNumber middle = bisect(s, segment, blocks, attempt);
    if (middle != done) search_around(s, segment, blocks, middle);
    done = middle;
  }
  // What was moved a moment ago is at the end.
  if (!s->unsettled && done + kAround < blocks) search_around(s, segment, blocks, blocks - 1);
}

void search_all(Search* s, const Segment& segment) {
  BlockNumber blocks = RelationGetNumberOfBlocks(segment.map);
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  for (BlockNumber b = kMetaBlock + 1; b < blocks && !s->unsettled; b++) {
    CHECK_FOR_INTERRUPTS();
    BlockNumber next;
    look_at_page(s, segment, b, strategy, &next, nullptr);
  }
  FreeAccessStrategy(strategy);
}

void search_segments(Search* s, const Queue* queue, void (*search)(Search*, const Segment&)) {
  // From the one that is written backwards: most of what people ask for is young.
  int first = Max(queue->write_segment, 0);
  for (int k = 0; k < queue->segment_count && !s->unsettled; k++) {
    int n = (first + queue->segment_count - k) % queue->segment_count;
    Segment segment;
    if (!open_segment_if_there(queue->heap[n], AccessShareLock, &segment)) continue;
    search(s, segment);
    close_segment(segment, AccessShareLock);
  }
}

// ---- tables of all queues

void search_lane(Search* s, const Segment& segment, uint32 lane) {
  MapMeta meta;
  LaneDirectoryEntry entry;
  read_meta(segment.map, &meta, &entry, lane);
  for (BlockNumber b = entry.first; BlockNumberIsValid(b) && !s->unsettled;) {
    CHECK_FOR_INTERRUPTS();
    BlockNumber next;
    look_at_page(s, segment, b, nullptr, &next, nullptr);
    b = next;
  }
}

// The lanes that rows of the message would have put their slots in: whoever made or deletes them, committed or not.
int lanes_of_rows(Relation heap, const SharedTable& table, int32 queue_id, int64 id, uint32* lanes, int most) {
  list_free(RelationGetIndexList(heap));
  if (!OidIsValid(heap->rd_pkindex)) return 0;
  Relation index = index_open(heap->rd_pkindex, AccessShareLock);
  ScanKeyData keys[2];
  ScanKeyInit(&keys[0], kRowQueueId + 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(queue_id));
  ScanKeyInit(&keys[1], kRowId + 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
  SysScanDesc scan = systable_beginscan_ordered(heap, index, SnapshotAny, 2, keys);
  int n = 0;
  while (HeapTuple row = n < most ? systable_getnext_ordered(scan, ForwardScanDirection) : nullptr) {
    bool isnull;
    Datum due = heap_getattr(row, kRowNotBefore + 1, RelationGetDescr(heap), &isnull);
    uint32 lane = shared_lane(table, queue_id, id, isnull ? 0 : DatumGetTimestampTz(due));
    bool known = false;
    for (int i = 0; i < n; i++) known |= lanes[i] == lane;
    if (!known) lanes[n++] = lane;
  }
  systable_endscan_ordered(scan);
  index_close(index, AccessShareLock);
  return n;
}

void search_shared(Search* s, SharedKind kind, int number, int32 queue_id) {
  Oid oid = shared_table_oid(kind, number);
  Segment segment;
  if (!OidIsValid(oid) || !open_segment_if_there(oid, AccessShareLock, &segment)) return;
  constexpr int kMostLanes = 16;
  uint32 lanes[kMostLanes];
  int n = lanes_of_rows(segment.heap, SharedTable{kind, number}, queue_id, s->id, lanes, kMostLanes);
  s->queue_id = static_cast<uint32>(queue_id);
  for (int i = 0; i < n && !s->unsettled; i++) search_lane(s, segment, lanes[i]);
  s->queue_id = 0;
  close_segment(segment, AccessShareLock);
}

void search_shared_tables(Search* s, const Queue* queue) {
  for (int n = 0; n < kLongTables && !s->unsettled; n++) search_shared(s, SharedKind::kLong, n, queue->id);
  for (int n = 0; n < kWheelTables && !s->unsettled; n++) search_shared(s, SharedKind::kLater, n, queue->id);
}

}  // namespace

bool find_message(const Queue* queue, int64 id, FoundMessage* out) {
  // Opening relations can load the definition anew, under the caller's pointer.
  Queue q = *queue;
  auto* page = static_cast<PGAlignedBlock*>(palloc(sizeof(PGAlignedBlock)));
  Search s{id, 0, out, page, false, false};
  search_segments(&s, &q, search_near);
  if (!s.unsettled) search_shared_tables(&s, &q);
  if (!s.unsettled) search_segments(&s, &q, search_all);
  pfree(page);
  return s.found;
}

}  // namespace baton
