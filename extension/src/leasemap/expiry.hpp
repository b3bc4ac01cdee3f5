// When messages of a database expire: for each map page with unsettled messages that do, the earliest time. Kept in the
// mover's own memory and built by reading each page once, when it has been appended to; so what expiry costs follows the
// messages that expire and not the backlog. Losing it costs one pass over the maps.
//
// A page is read again when its time has come. Only then are the times of its single messages kept, so that a row is
// fetched twice and not at every look; 1 kB for each page whose messages are expiring just now, 80 bytes for the others.
#pragma once

#include "hints.hpp"
#include "resolve.hpp"

namespace baton {

struct ExpiryPage {
  BlockNumber block;  // hash key
  bool queued;        // in the heap
  TimestampTz at;     // when to look at it
  TimestampTz* times;  // of its slots, kNever: does not expire; 0: not known. nullptr until its time has come once
  pairingheap_node node;
};

struct ExpiryMap {
  RelNumber rel;  // hash key
  int32 queue_id;
  TimestampTz retry_at;  // left alone until then
  int failures;          // since something was settled
  MemoryContext context;
  HTAB* pages;
  pairingheap* due;  // earliest first
};

// Pages that have been appended to since: still to be read.
struct ExpiryLook {
  RelNumber rel;  // hash key, with lane
  uint32 lane;
  int32 queue_id;
  BlockNumber block;     // from here on; InvalidBlockNumber: from the lane's first with unsettled work
  TimestampTz retry_at;
};

struct ExpiryBook {
  MemoryContext context;
  HTAB* maps;
  HTAB* looks;
};

ExpiryBook* make_expiry_book(MemoryContext parent);
void drop_expiry_book(ExpiryBook* book);
ExpiryMap* find_expiry_map(ExpiryBook* book, RelNumber rel);
ExpiryMap* make_expiry_map(ExpiryBook* book, RelNumber rel, int32 queue_id);
void forget_expiry_map(ExpiryBook* book, RelNumber rel);  // and what was still to be read of it
// All of them, palloc'd.
int list_expiry_maps(const ExpiryBook* book, ExpiryMap*** maps);
int list_expiry_looks(const ExpiryBook* book, ExpiryLook*** looks);
void ask_for_expiry_look(ExpiryBook* book, RelNumber rel, uint32 lane, int32 queue_id, BlockNumber block);
void drop_expiry_look(ExpiryBook* book, ExpiryLook* look);

// The page that comes first, if its time has come: taken out of the heap, to be given back or dropped.
ExpiryPage* pop_expiry_page(ExpiryMap* map, TimestampTz now);
void give_back_expiry_page(ExpiryMap* map, ExpiryPage* page, TimestampTz at);  // kNever: nothing left on it

bool expiry_is_due(const ExpiryMap* map, TimestampTz now);

// Reads pages of a lane, from look->block on, and notes when messages on them expire. False: it has taken long enough, and
// look->block says where to go on.
bool look_for_expiry(ExpiryMap* map, const Segment& segment, ExpiryLook* look, int64 budget_us);

// Do all slots of the map that expire say so? If not (maps of 0.1.0), their rows have to be asked.
bool map_knows_expiry(Relation map);
// When the message of slot i of the page expires; kNever: it does not.
TimestampTz expiry_of(const Segment& segment, ExpiryMap* map, ExpiryPage* page, const Slot& slot, int i, bool knows);

}  // namespace baton
