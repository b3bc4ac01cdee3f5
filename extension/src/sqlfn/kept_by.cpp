// What keeps a table from being truncated, for those who look: the decision of rotation and of retention, taken for show.
#include "../leasemap/rotate.hpp"
#include "../leasemap/row.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../pg/guc.hpp"
#include "../retained/reclaim.hpp"
#include "arguments.hpp"

namespace baton {
namespace {

struct Kept {
  Keep keep;
  int32 queue_id;
  TimestampTz until;
};

// False: it is no table that we truncate.
bool segment_kept(Oid relation, Kept* kept) {
  Relation heap = try_relation_open(relation, AccessShareLock);
  if (!heap) return false;
  int32 id = queue_id_of_segment(heap);
  bool shared_table = shared_table_of(heap).kind != SharedKind::kNone;
  relation_close(heap, AccessShareLock);
  if (shared_table) {
    kept->keep = shared_kept_by(relation, &kept->until);
    return true;
  }
  Queue* q = id > 0 ? find_queue_by_id(id) : nullptr;
  for (int n = 0; q && n < q->segment_count; n++) {
    if (q->heap[n] != relation) continue;
    kept->keep = segment_kept_by(q, n, &kept->until);
    return true;
  }
  return false;
}

bool kept_by(Oid relation, Kept* kept) {
  int n = retained_number(relation);
  if (n < 0) return segment_kept(relation, kept);
  RetainedKeep k = retained_kept_by(n);
  *kept = Kept{k.keep, k.queue_id, k.until};
  return true;
}

}  // namespace
}  // namespace baton

// Checks no privilege: the schema is closed, and the view that calls it shows what its reader may see.
BATON_SQL_FUNCTION(baton_kept_by) {
  using namespace baton;
  ReturnSetInfo* result = begin_result(fcinfo);
  Kept kept{Keep::kNothing, 0, 0};
  require_preload();
  if (!kept_by(PG_GETARG_OID(0), &kept)) return static_cast<Datum>(0);
  Datum values[3] = {CStringGetTextDatum(keep_word(kept.keep)), Int32GetDatum(kept.queue_id), TimestampTzGetDatum(kept.until)};
  bool nulls[3] = {false, kept.queue_id == 0, kept.until == 0};
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  return static_cast<Datum>(0);
}
