// hold_rotation: no truncation for a while, for a dump or a long report, here or on a standby. The end is a column of the
// queue's definition, so a restart does not forget it. Rotation takes the lock that changers of a definition take: that
// makes the promise exact. A truncation that is under way has ended before this returns, and none begins afterwards.
#include "hold_rotation.hpp"

#include "../pg/clock.hpp"
#include "arguments.hpp"
#include "as_owner.hpp"
#include "audit.hpp"

namespace baton {
namespace {

constexpr int64 kLongestHold = 7 * USECS_PER_DAY;  // a longer one is a forgotten one

// Names of all queues, in id order.
List* queue_names() {
  List* names = NIL;
  MemoryContext caller = CurrentMemoryContext;
  Elevated e = become_extension_owner();
  run("SELECT name FROM baton_internal.queue ORDER BY id");
  for (uint64 i = 0; i < SPI_tuptable->numvals; i++) {
    char* name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
    MemoryContext mine = MemoryContextSwitchTo(caller);
    names = lappend(names, pstrdup(name));
    MemoryContextSwitchTo(mine);
  }
  become_caller(e);
  return names;
}

// False: there is no such queue of the caller's. *until: the end of its hold from now on, 0 if there is none. Nothing but
// the definition is touched, so a damaged queue can be held as well.
bool hold_queue(const char* name, int64 how_long, TimestampTz now, TimestampTz* until) {
  Oid view = get_relname_relid(name, baton_queue_namespace());
  if (!OidIsValid(view) || !object_owner_is_me(RelationRelationId, view)) return false;
  LockRelationOid(view, ShareUpdateExclusiveLock);
  Queue q;
  if (!read_definition(name, &q)) return false;
  // A hold that runs longer is somebody else's, and stays; only 0 ends one.
  *until = how_long == 0 ? 0 : Max(now + how_long, q.rotation_held_until);
  if (*until == q.rotation_held_until) return true;
  const char* details = *until == 0 ? nullptr : psprintf("{\"until\": \"%s\"}", timestamptz_to_str(*until));
  write_audit(AuditEntry{"hold_rotation", &q, -1, nullptr, details});
  Oid types[] = {TIMESTAMPTZOID, INT4OID};
  Datum values[] = {TimestampTzGetDatum(*until), Int32GetDatum(q.id)};
  Elevated e = become_extension_owner();
  if (*until == 0)
    run(psprintf("UPDATE baton_internal.queue SET rotation_held_until = NULL WHERE id = %d", q.id));
  else
    run_with("UPDATE baton_internal.queue SET rotation_held_until = $1 WHERE id = $2", 2, types, values);
  become_caller(e);
  forget_queue(view);
  return true;
}

TimestampTz hold_all(int64 how_long, TimestampTz now) {
  TimestampTz earliest = PG_INT64_MAX;
  ListCell* cell;
  foreach (cell, queue_names()) {
    TimestampTz until;
    if (hold_queue(static_cast<char*>(lfirst(cell)), how_long, now, &until)) earliest = Min(earliest, until);
  }
  return earliest == PG_INT64_MAX ? 0 : earliest;
}

}  // namespace

bool no_rotation_is_held() {
  Oid definitions = get_relname_relid("queue", baton_internal_namespace());
  if (!has_later_options() || !ConditionalLockRelationOid(definitions, ShareLock)) return false;
  if (read_queue_holds().rotation_until <= clock_now()) return true;
  UnlockRelationOid(definitions, ShareLock);
  return false;
}

}  // namespace baton

BATON_SQL_FUNCTION(baton_hold_rotation) {
  using namespace baton;
  require_writable("hold_rotation");
  if (PG_ARGISNULL(0))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("how_long must not be null"), errhint("0 ends a hold.")));
  int64 how_long = interval_argument("how_long", PG_GETARG_INTERVAL_P(0), 0, kLongestHold);
  TimestampTz now = clock_now();
  TimestampTz until = 0;
  if (PG_ARGISNULL(1)) {
    until = hold_all(how_long, now);
  } else {
    char name[NAMEDATALEN];
    queue_name(PG_GETARG_TEXT_PP(1), name);
    Queue q;
    if (!read_definition(name, &q))
      ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", name)));
    if (!hold_queue(name, how_long, now, &until))
      ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to hold its rotation", name)));
  }
  if (until == 0) PG_RETURN_NULL();
  PG_RETURN_TIMESTAMPTZ(until);
}
