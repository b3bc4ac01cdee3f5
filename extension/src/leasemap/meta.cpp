// The metapage: format version, epoch, place in the ring's order, directory of lanes. Read when a lane's hints are made,
// changed when a page is added, a segment is opened or truncated: never on the hot path.
#include "../pg/clock.hpp"
#include "../pg/errors.hpp"
#include "../pg/queue.hpp"
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

// Changes one 8-byte field of the metapage and logs it.
static bool set_meta_field(Relation map, uint64 MapMeta::*field, uint64 value, bool only_if_zero) {
  Buffer buf = lock_meta(map, BUFFER_LOCK_EXCLUSIVE);
  Page page = BufferGetPage(buf);
  uint64* target = &(map_meta(page)->*field);
  bool change = !(only_if_zero && *target != 0);
  if (change) {
    Fragment f{static_cast<uint16>(reinterpret_cast<char*>(target) - reinterpret_cast<char*>(page)), sizeof(uint64)};
    map_log_begin(map);
    START_CRIT_SECTION();
    *target = value;
    map_log(map, buf, &f, 1);
    END_CRIT_SECTION();
  }
  UnlockReleaseBuffer(buf);
  return change;
}

bool open_map(Relation map, uint64 open_seq) { return set_meta_field(map, &MapMeta::open_seq, open_seq, true); }
void set_guard_xid(Relation map, uint64 full_xid) { set_meta_field(map, &MapMeta::guard_xid, full_xid, false); }

}  // namespace baton
