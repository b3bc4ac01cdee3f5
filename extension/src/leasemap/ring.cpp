// See ring.hpp. The order of the segments is a growing number in each map's metapage (open_seq); the newest is written.
// Shared memory remembers the highest number, so that an enqueue needs no metapage; it is only a hint, checked under the
// segment's lock.
#include "ring.hpp"

#include "../core/lane.hpp"
#include "../pg/shmem.hpp"

namespace baton {
namespace {

constexpr int64 kSmallestEarly = 1024 * 1024;  // below this, moving on early is not worth a truncation
constexpr int kEarlyShare = 16;                // of segment_bytes

}  // namespace

int64 segment_size(const Segment& segment) { return static_cast<int64>(RelationGetNumberOfBlocks(segment.heap)) * BLCKSZ; }

bool try_open_segment(Oid heap_oid, LOCKMODE lock, Segment* s) {
  s->heap = nullptr;
  s->map = nullptr;
  if (!OidIsValid(heap_oid) || !ConditionalLockRelationOid(heap_oid, lock)) return false;
  s->heap = try_relation_open(heap_oid, NoLock);
  if (!s->heap) {
    UnlockRelationOid(heap_oid, lock);
    return false;
  }
  Oid map_oid = find_map(s->heap);
  if (!OidIsValid(map_oid) || !ConditionalLockRelationOid(map_oid, lock)) {
    relation_close(s->heap, lock);
    return false;
  }
  s->map = index_open(map_oid, NoLock);
  return true;
}

bool look_at_ring(const Queue& queue, Ring* ring) {
  ring->count = queue.segment_count;
  ring->newest = -1;
  ring->any_empty = false;
  int64 newest_bytes = 0;
  for (int i = 0; i < ring->count; i++) {
    Segment s;
    if (!try_open_segment(queue.heap[i], AccessShareLock, &s)) return false;
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(s.map, &meta, &entry, kDefaultLane);
    ring->members[i] = RingMember{meta.open_seq > 0, queue.heap[i], meta.open_seq, meta.epoch, meta.guard_xid, rel_number(s.map)};
    if (meta.open_seq == 0) ring->any_empty = true;
    // As enqueue decides it: the first of those with the highest number.
    if (meta.open_seq > 0 && (ring->newest < 0 || meta.open_seq > ring->members[ring->newest].open_seq)) {
      ring->newest = i;
      newest_bytes = segment_size(s);
    }
    close_segment(s, AccessShareLock);
  }
  if (ring->newest >= 0) ring->members[ring->newest].candidate = false;
  ring->full = ring->newest >= 0 && !ring->any_empty && newest_bytes >= queue.segment_bytes;
  return true;
}

RingMember* next_candidate(Ring* ring) {
  RingMember* oldest = nullptr;
  for (int i = 0; i < ring->count; i++) {
    RingMember* m = &ring->members[i];
    if (m->candidate && (!oldest || m->open_seq < oldest->open_seq)) oldest = m;
  }
  if (oldest) oldest->candidate = false;
  return oldest;
}

// The empty segment with the lowest epoch, -1 if none is to be had. In that order a segment that is opened later has the greater
// epoch, and a message that is moved forward is claimed there under a greater fence than before.
static int next_empty(const Queue* queue, const bool* passed) {
  int best = -1;
  uint64 best_epoch = 0;
  for (int i = 0; i < queue->segment_count; i++) {
    Segment s;
    if (passed[i] || !try_open_segment(queue->heap[i], RowExclusiveLock, &s)) continue;
    MapMeta meta;
    LaneDirectoryEntry entry;
    read_meta(s.map, &meta, &entry, kDefaultLane);
    if (meta.open_seq == 0 && (best < 0 || meta.epoch < best_epoch)) {
      best = i;
      best_epoch = meta.epoch;
    }
    close_segment(s, RowExclusiveLock);
  }
  return best;
}

bool move_on(Queue* queue, const Segment& current, int number) {
  if (!ConditionalLockPage(current.map, kMetaBlock, ExclusiveLock)) return false;
  QueueHint* qh = queue_hint(MyDatabaseId, queue->id);
  uint64 newest = pg_atomic_read_u64(&qh->newest_open_seq);
  bool moved = false;
  if (newest != 0 && view_lane(current.map, kDefaultLane).open_seq == newest) {
    bool passed[kMaxSegments] = {};
    passed[number] = true;
    for (int j = next_empty(queue, passed); j >= 0 && !moved; j = next_empty(queue, passed)) {
      passed[j] = true;
      Segment s;
      if (!try_open_segment(queue->heap[j], RowExclusiveLock, &s)) continue;
      moved = open_map(s.map, newest + 1);
      if (moved) {
        hint_opened(lane_hint(s.map, kDefaultLane), lane_key(s.map, kDefaultLane), newest + 1);
        pg_atomic_write_u64(&qh->newest_open_seq, newest + 1);
      }
      close_segment(s, RowExclusiveLock);
    }
  }
  UnlockPage(current.map, kMetaBlock, ExclusiveLock);
  return moved;
}

Segment open_write_segment(Queue* queue, int* number) {
  QueueHint* qh = queue_hint(MyDatabaseId, queue->id);
  for (int attempt = 0;; attempt++) {
    uint64 newest = pg_atomic_read_u64(&qh->newest_open_seq);
    int guess = queue->write_segment;
    if (newest != 0 && guess >= 0 && guess < queue->segment_count) {
      Segment s = open_segment(queue->heap[guess], RowExclusiveLock);
      if (view_lane(s.map, kDefaultLane).open_seq == newest) {
        *number = guess;
        return s;
      }
      close_segment(s, RowExclusiveLock);
    }
    // Which one is newest is read again from all of them, under their locks.
    uint64 best_seq = 0;
    int best = 0;
    for (int i = 0; i < queue->segment_count; i++) {
      Segment s = open_segment(queue->heap[i], RowExclusiveLock);
      MapMeta meta;
      LaneDirectoryEntry entry;
      read_meta(s.map, &meta, &entry, kDefaultLane);
      if (meta.open_seq > best_seq) {
        best_seq = meta.open_seq;
        best = i;
      }
      hint_opened(lane_hint(s.map, kDefaultLane), lane_key(s.map, kDefaultLane), meta.open_seq);
      close_segment(s, RowExclusiveLock);
    }
    if (best_seq == 0) {
      Segment s = open_segment(queue->heap[0], RowExclusiveLock);
      open_map(s.map, 1);
      hint_opened(lane_hint(s.map, kDefaultLane), lane_key(s.map, kDefaultLane), 1);
      close_segment(s, RowExclusiveLock);
      best_seq = 1;
    }
    queue->write_segment = best;
    uint64 expected = newest;
    pg_atomic_compare_exchange_u64(&qh->newest_open_seq, &expected, best_seq);
    if (attempt > 10) {
      // Others keep opening segments under us; the one found is as good as any.
      *number = best;
      return open_segment(queue->heap[best], RowExclusiveLock);
    }
  }
}

bool move_on_early(Queue* queue) {
  QueueHint* qh = queue_hint(MyDatabaseId, queue->id);
  uint64 newest = pg_atomic_read_u64(&qh->newest_open_seq);
  int guess = queue->write_segment;
  if (newest == 0 || guess < 0 || guess >= queue->segment_count) guess = 0;
  for (int k = 0; k < queue->segment_count; k++) {
    int i = (guess + k) % queue->segment_count;
    if (!ConditionalLockRelationOid(queue->heap[i], RowExclusiveLock)) return false;
    Segment s = open_segment(queue->heap[i], RowExclusiveLock);
    LaneView view = view_lane(s.map, kDefaultLane);
    bool moved = false;
    bool is_newest = newest != 0 && view.open_seq == newest;
    if (is_newest && view.map_lanes == 1 && segment_size(s) >= Max(kSmallestEarly, queue->segment_bytes / kEarlyShare) &&
        view.low >= view.appended / 10 * 9)
      moved = move_on(queue, s, i);
    close_segment(s, RowExclusiveLock);
    UnlockRelationOid(queue->heap[i], RowExclusiveLock);
    if (is_newest) return moved;
  }
  return false;
}

}  // namespace baton
