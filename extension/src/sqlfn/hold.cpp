// Legal hold: nothing that is retained of the queue goes while it stands, whatever its retention says, and the queue
// cannot be dropped. Reclaiming reads the holds under a lock that conflicts with the change made here, so the promise is
// exact: a truncation that is under way has ended before hold's transaction goes on, and none begins after its commit.
#include "../core/envelope.hpp"
#include "../pg/errors.hpp"
#include "arguments.hpp"
#include "as_owner.hpp"
#include "audit.hpp"

namespace baton {
namespace {

// The caller's queue, its definition locked and read anew, and why it is held (nullptr: it is not).
Oid lock_definition(text* name, const char* verb, Queue* q, text** held) {
  char wanted[NAMEDATALEN];
  queue_name(name, wanted);
  Oid view = get_relname_relid(wanted, baton_queue_namespace());
  if (!OidIsValid(view) || !read_definition(wanted, q))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", wanted)));
  if (!object_owner_is_me(RelationRelationId, view))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to %s it", wanted, verb)));
  LockRelationOid(view, ShareUpdateExclusiveLock);
  if (!read_definition(wanted, q))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", wanted)));
  *held = read_hold(q->id);
  return view;
}

void set_held(const Queue& q, Oid view, text* reason) {
  Oid types[] = {TEXTOID, INT4OID};
  Datum values[] = {PointerGetDatum(reason), Int32GetDatum(q.id)};
  Elevated e = become_extension_owner();
  if (reason)
    run_with("UPDATE baton_internal.queue SET held = $1 WHERE id = $2", 2, types, values);
  else
    run(psprintf("UPDATE baton_internal.queue SET held = NULL WHERE id = %d", q.id));
  become_caller(e);
  forget_queue(view);
}

}  // namespace
}  // namespace baton

BATON_SQL_FUNCTION(baton_hold) {
  using namespace baton;
  require_writable("hold");
  if (PG_ARGISNULL(1) || VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(1)) == 0) raise_bad_argument("reason", "must not be null or empty");
  text* reason = PG_GETARG_TEXT_PP(1);
  check_text_length("reason", reason, kMaxReasonBytes);
  Queue q;
  text* held;
  Oid view = lock_definition(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), "hold", &q, &held);
  if (held)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("queue \"%s\" is on hold already", q.name),
                    errdetail("Its reason is \"%s\".", text_to_cstring(held)),
                    errhint("Let baton.unhold end that hold first; then hold the queue for both reasons.")));
  write_audit(AuditEntry{"hold", &q, -1, reason, nullptr});
  set_held(q, view, reason);
  if (q.retention == 0)
    ereport(NOTICE, (errmsg("queue \"%s\" retains nothing that is acknowledged from now on", q.name),
                     errhint("SELECT baton.alter_queue(%s, retention => '30 days') makes it.", quote_literal_cstr(q.name))));
  PG_RETURN_VOID();
}

BATON_SQL_FUNCTION(baton_unhold) {
  using namespace baton;
  require_writable("unhold");
  text* reason = PG_ARGISNULL(1) ? nullptr : PG_GETARG_TEXT_PP(1);
  if (reason) check_text_length("reason", reason, kMaxReasonBytes);
  Queue q;
  text* held;
  Oid view = lock_definition(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), "unhold", &q, &held);
  if (!held) PG_RETURN_BOOL(false);
  StringInfoData details;
  initStringInfo(&details);
  appendStringInfoString(&details, "{\"held\": ");
  escape_json(&details, text_to_cstring(held));
  appendStringInfoChar(&details, '}');
  write_audit(AuditEntry{"unhold", &q, -1, reason, details.data});
  set_held(q, view, nullptr);
  PG_RETURN_BOOL(true);
}
