// See expiry.hpp.
#include "expiry.hpp"

#include "row.hpp"

namespace baton {
namespace {

// The server's own macros for this are C.
ExpiryPage* page_of(pairingheap_node* node) { return reinterpret_cast<ExpiryPage*>(reinterpret_cast<char*>(node) - offsetof(ExpiryPage, node)); }

int later_first(const pairingheap_node* a, const pairingheap_node* b, void*) {
  const ExpiryPage* x = page_of(const_cast<pairingheap_node*>(a));
  const ExpiryPage* y = page_of(const_cast<pairingheap_node*>(b));
  // The heap gives the greatest first.
  return x->at > y->at ? -1 : x->at < y->at ? 1 : 0;
}

HTAB* make_table(const char* name, Size key, Size entry, MemoryContext context) {
  HASHCTL ctl;
  memset(&ctl, 0, sizeof(ctl));
  ctl.keysize = key;
  ctl.entrysize = entry;
  ctl.hcxt = context;
  return hash_create(name, 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

template <typename T>
int list_entries(HTAB* table, T*** out) {
  long count = hash_get_num_entries(table);
  *out = static_cast<T**>(palloc(sizeof(T*) * static_cast<Size>(count + 1)));
  int n = 0;
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, table);
  while (auto* e = static_cast<T*>(hash_seq_search(&seq))) (*out)[n++] = e;
  return n;
}

// The earliest expiry among a page's unsettled messages; kNever if there is none.
TimestampTz earliest_on(const Segment& segment, const PageCopy& copy, bool knows) {
  TimestampTz earliest = kNever;
  for (int i = 0; i < copy.count; i++) {
    const Slot& s = copy.resolved[i];
    if (!slot_is_unsettled(s) || (knows && !slot_expires(s))) continue;
    TimestampTz at;
    if (row_expires_at(segment.heap, s, &at) && at < earliest) earliest = at;
  }
  return earliest;
}

void note_page(ExpiryMap* map, BlockNumber block, TimestampTz earliest) {
  bool found;
  auto* p = static_cast<ExpiryPage*>(hash_search(map->pages, &block, earliest == kNever ? HASH_FIND : HASH_ENTER, &found));
  if (!p) return;
  if (!found) {
    p->queued = false;
    p->times = nullptr;
  }
  // What the page was due for is looked at then, and found settled if it is.
  if (p->queued && p->at <= earliest) return;
  if (p->queued) pairingheap_remove(map->due, &p->node);
  p->at = earliest;
  p->queued = true;
  pairingheap_add(map->due, &p->node);
}

}  // namespace

ExpiryBook* make_expiry_book(MemoryContext parent) {
  MemoryContext context = AllocSetContextCreate(parent, "baton expiry", ALLOCSET_DEFAULT_SIZES);
  auto* book = static_cast<ExpiryBook*>(MemoryContextAlloc(context, sizeof(ExpiryBook)));
  book->context = context;
  book->maps = make_table("pg_baton expiring maps", sizeof(RelNumber), sizeof(ExpiryMap), context);
  book->looks = make_table("pg_baton expiry looks", offsetof(ExpiryLook, queue_id), sizeof(ExpiryLook), context);
  return book;
}

void drop_expiry_book(ExpiryBook* book) { MemoryContextDelete(book->context); }

ExpiryMap* find_expiry_map(ExpiryBook* book, RelNumber rel) {
  return static_cast<ExpiryMap*>(hash_search(book->maps, &rel, HASH_FIND, nullptr));
}

ExpiryMap* make_expiry_map(ExpiryBook* book, RelNumber rel, int32 queue_id) {
  MemoryContext context = AllocSetContextCreate(book->context, "baton expiring map", ALLOCSET_SMALL_SIZES);
  HTAB* pages = make_table("pg_baton expiring pages", sizeof(BlockNumber), sizeof(ExpiryPage), context);
  MemoryContext caller = MemoryContextSwitchTo(context);
  pairingheap* due = pairingheap_allocate(later_first, nullptr);
  MemoryContextSwitchTo(caller);
  auto* map = static_cast<ExpiryMap*>(hash_search(book->maps, &rel, HASH_ENTER, nullptr));
  map->queue_id = queue_id;
  map->retry_at = 0;
  map->failures = 0;
  map->context = context;
  map->pages = pages;
  map->due = due;
  return map;
}

void forget_expiry_map(ExpiryBook* book, RelNumber rel) {
  ExpiryLook** looks;
  int n = list_expiry_looks(book, &looks);
  for (int i = 0; i < n; i++)
    if (looks[i]->rel == rel) drop_expiry_look(book, looks[i]);
  pfree(looks);
  ExpiryMap* map = find_expiry_map(book, rel);
  if (!map) return;
  MemoryContext context = map->context;
  hash_search(book->maps, &rel, HASH_REMOVE, nullptr);
  MemoryContextDelete(context);
}

int list_expiry_maps(const ExpiryBook* book, ExpiryMap*** maps) { return list_entries(book->maps, maps); }
int list_expiry_looks(const ExpiryBook* book, ExpiryLook*** looks) { return list_entries(book->looks, looks); }

void ask_for_expiry_look(ExpiryBook* book, RelNumber rel, uint32 lane, int32 queue_id, BlockNumber block) {
  ExpiryLook key;
  memset(&key, 0, sizeof(key));
  key.rel = rel;
  key.lane = lane;
  bool found;
  auto* look = static_cast<ExpiryLook*>(hash_search(book->looks, &key, HASH_ENTER, &found));
  look->queue_id = queue_id;
  // A look that is under way reads on to the lane's end, and so what has been appended since.
  if (!found || !BlockNumberIsValid(block)) look->block = block;
  if (!found) look->retry_at = 0;
}

void drop_expiry_look(ExpiryBook* book, ExpiryLook* look) { hash_search(book->looks, look, HASH_REMOVE, nullptr); }

bool expiry_is_due(const ExpiryMap* map, TimestampTz now) {
  if (pairingheap_is_empty(map->due)) return false;
  return page_of(pairingheap_first(map->due))->at <= now;
}

ExpiryPage* pop_expiry_page(ExpiryMap* map, TimestampTz now) {
  if (!expiry_is_due(map, now)) return nullptr;
  ExpiryPage* p = page_of(pairingheap_remove_first(map->due));
  p->queued = false;
  return p;
}

void give_back_expiry_page(ExpiryMap* map, ExpiryPage* page, TimestampTz at) {
  if (at == kNever) {
    if (page->times) pfree(page->times);
    hash_search(map->pages, &page->block, HASH_REMOVE, nullptr);
    return;
  }
  page->at = at;
  page->queued = true;
  pairingheap_add(map->due, &page->node);
}

bool map_knows_expiry(Relation map) {
  MapMeta meta;
  LaneDirectoryEntry entry;
  read_meta(map, &meta, &entry, kDefaultLane);
  return (meta.flags & kMapKnowsExpiry) != 0;
}

TimestampTz expiry_of(const Segment& segment, ExpiryMap* map, ExpiryPage* page, const Slot& slot, int i, bool knows) {
  if (knows && !slot_expires(slot)) return kNever;
  if (!page->times) page->times = static_cast<TimestampTz*>(MemoryContextAllocZero(map->context, sizeof(TimestampTz) * kSlotsPerPage));
  TimestampTz* at = &page->times[i];
  if (*at == 0 && !row_expires_at(segment.heap, slot, at)) *at = kNever;
  return *at;
}

bool look_for_expiry(ExpiryMap* map, const Segment& segment, ExpiryLook* look, int64 budget_us) {
  TimestampTz start = GetCurrentTimestamp();
  bool knows = map_knows_expiry(segment.map);
  if (!BlockNumberIsValid(look->block)) {
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(segment.map, &meta, &entry, look->lane);
    look->block = entry.first;
  }
  auto* copy = static_cast<PageCopy*>(palloc(sizeof(PageCopy)));
  BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
  bool done = true;
  while (BlockNumberIsValid(look->block)) {
    CHECK_FOR_INTERRUPTS();
    if (!copy_slots(segment.map, look->block, 0, kSlotsPerPage, strategy, copy)) break;
    resolve_copy(segment.heap, copy);
    note_page(map, look->block, earliest_on(segment, *copy, knows));
    if (!BlockNumberIsValid(copy->next)) break;
    look->block = copy->next;
    done = GetCurrentTimestamp() - start < budget_us;
    if (!done) break;
  }
  FreeAccessStrategy(strategy);
  pfree(copy);
  return done;
}

}  // namespace baton
