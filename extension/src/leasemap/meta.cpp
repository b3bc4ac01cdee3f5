// The metapage: format version, epoch, place in the ring's order, directory of lanes. Read when a lane's hints are made,
// changed when a page is added, a segment is opened or truncated: never on the hot path.
#include "../core/lane.hpp"
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/queue.hpp"
#include "../pg/shmem.hpp"
#include "map.hpp"

namespace baton {

// Never below the clock in seconds: a copy that was restored from a dump goes on with the sequence as it was then, and must
// not repeat what the original has given out since.
uint64 next_epoch() {
  Oid seq = get_relname_relid("epoch_seq", baton_internal_namespace());
  if (!OidIsValid(seq)) elog(ERROR, "sequence baton_internal.epoch_seq is missing");
  int64 least = clock_now() / USECS_PER_SEC;
  int64 epoch = nextval_internal(seq, false);
  if (epoch >= least) return static_cast<uint64>(epoch);
  // One at a time: who sets the sequence must not set it back behind what another has taken from it.
  LockRelationOid(seq, ShareRowExclusiveLock);
  epoch = nextval_internal(seq, false);
  if (epoch < least) {
    Oid user;
    int security;
    GetUserIdAndSecContext(&user, &security);
    SetUserIdAndSecContext(get_rel_owner(seq), security | SECURITY_LOCAL_USERID_CHANGE);
    OidFunctionCall2(F_SETVAL_REGCLASS_INT8, ObjectIdGetDatum(seq), Int64GetDatum(least));
    SetUserIdAndSecContext(user, security);
    epoch = nextval_internal(seq, false);
  }
  UnlockRelationOid(seq, ShareRowExclusiveLock);
  return static_cast<uint64>(epoch);
}

void init_meta_page(Page page, uint64 epoch) {
  PageInit(page, BLCKSZ, 0);
  MapMeta* meta = map_meta(page);
  memset(meta, 0, offsetof(MapMeta, lanes));
  meta->magic = kMapMagic;
  meta->version = kMapFormatVersion;
  meta->flags = kMapKnowsExpiry;
  meta->epoch = epoch;
  meta->next_directory = InvalidBlockNumber;
  reinterpret_cast<PageHeader>(page)->pd_lower =
      static_cast<LocationIndex>(reinterpret_cast<char*>(meta->lanes) - reinterpret_cast<char*>(page));
}

void create_meta(Relation map) {
  uint64 epoch = next_epoch();
  // Two first users of an unlogged map that a crash emptied: one of them makes the page.
  LockPage(map, kMetaBlock, ExclusiveLock);
  if (RelationGetNumberOfBlocks(map) == 0) {
    Buffer buf = extend_relation(map);
    GenericXLogState* state = GenericXLogStart(map);
    init_meta_page(GenericXLogRegisterBuffer(state, buf, GENERIC_XLOG_FULL_IMAGE), epoch);
    GenericXLogFinish(state);
    UnlockReleaseBuffer(buf);
  }
  UnlockPage(map, kMetaBlock, ExclusiveLock);
}

void raise_damaged_map(Relation map, BlockNumber block) {
  ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED), errmsg("block %u of lease map \"%s\" is not a page of its lane", block, RelationGetRelationName(map)),
                  errhint("REINDEX it: unsettled messages become ready again and old tokens are refused.")));
  pg_unreachable();
}

static void check_meta(Relation map, const MapMeta* meta) {
  if (meta->magic != kMapMagic)
    ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED), errmsg("\"%s\" is not a lease map", RelationGetRelationName(map)),
                    errhint("REINDEX it: unsettled messages become ready again and old tokens are refused.")));
  if (meta->version > kMapFormatVersion)
    ereport(ERROR, (errcode(kErrLibraryTooOld), errmsg("lease map \"%s\" has format version %u, this library knows %u",
                                                       RelationGetRelationName(map), meta->version, kMapFormatVersion),
                    errhint("Install the newer pg_baton library and restart the server.")));
}

// Pins and locks the metapage, made first where it is missing.
static Buffer lock_meta(Relation map, BufferLock mode) {
  if (RelationGetNumberOfBlocks(map) == 0) create_meta(map);
  Buffer buf = ReadBuffer(map, kMetaBlock);
  LockBuffer(buf, mode);
  if (PageIsNew(BufferGetPage(buf))) {
    UnlockReleaseBuffer(buf);
    ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED), errmsg("lease map \"%s\" has an empty metapage", RelationGetRelationName(map)),
                    errhint("REINDEX it: unsettled messages become ready again and old tokens are refused.")));
  }
  check_meta(map, map_meta(BufferGetPage(buf)));
  return buf;
}

void read_meta(Relation map, MapMeta* header, LaneDirectoryEntry* entry, uint32 lane) {
  Buffer buf = lock_meta(map, BUFFER_LOCK_SHARE);
  const MapMeta* meta = map_meta(BufferGetPage(buf));
  memcpy(header, meta, offsetof(MapMeta, lanes));
  *entry = LaneDirectoryEntry{lane, InvalidBlockNumber, InvalidBlockNumber};
  for (uint32 i = 0; i < meta->lane_count; i++)
    if (meta->lanes[i].lane == lane) *entry = meta->lanes[i];
  UnlockReleaseBuffer(buf);
}

int list_lanes(Relation map, LaneDirectoryEntry* out, int max) {
  Buffer buf = lock_meta(map, BUFFER_LOCK_SHARE);
  const MapMeta* meta = map_meta(BufferGetPage(buf));
  int n = Min(static_cast<int>(meta->lane_count), max);
  memcpy(out, meta->lanes, sizeof(LaneDirectoryEntry) * static_cast<Size>(n));
  UnlockReleaseBuffer(buf);
  return n;
}

// Logs bytes [from, to) of the metapage, which have just been changed.
static void log_meta(Relation map, Buffer buf, const void* from, const void* to) {
  char* page = BufferGetPage(buf);
  Fragment f{static_cast<uint16>(static_cast<const char*>(from) - page), static_cast<uint16>(static_cast<const char*>(to) - static_cast<const char*>(from))};
  map_log(map, buf, &f, 1);
}

bool open_map(Relation map, uint64 open_seq) {
  uint64 epoch = next_epoch();
  Buffer buf = lock_meta(map, BUFFER_LOCK_EXCLUSIVE);
  MapMeta* meta = map_meta(BufferGetPage(buf));
  bool open = meta->open_seq == 0;
  if (open) {
    // Where a slot is there already (plain SQL, replication), tokens with the old epoch may be as well.
    if (meta->lane_count > 0) epoch = meta->epoch;
    map_log_begin(map);
    START_CRIT_SECTION();
    meta->epoch = epoch;
    meta->open_seq = open_seq;
    log_meta(map, buf, &meta->epoch, &meta->open_seq + 1);
    END_CRIT_SECTION();
    // Before the page is unlocked: the first slot, and so the first token, comes after that.
    if (LaneHint* h = shared ? find_or_make_lane_hint(lane_key(map, kDefaultLane)) : nullptr)
      hint_opened(h, lane_key(map, kDefaultLane), open_seq, epoch);
  }
  UnlockReleaseBuffer(buf);
  return open;
}

void set_guard_xid(Relation map, uint64 full_xid) {
  Buffer buf = lock_meta(map, BUFFER_LOCK_EXCLUSIVE);
  MapMeta* meta = map_meta(BufferGetPage(buf));
  map_log_begin(map);
  START_CRIT_SECTION();
  meta->guard_xid = full_xid;
  log_meta(map, buf, &meta->guard_xid, &meta->guard_xid + 1);
  END_CRIT_SECTION();
  UnlockReleaseBuffer(buf);
}

}  // namespace baton
