// Verbs that make, change and drop queues. Each checks everything before its first write, decides by the caller's own
// rights, and only then acts as the extension's owner, with search_path pinned: what the caller can plant anywhere is
// never looked up. On an error the abort of the (sub)transaction restores user, settings and SPI.
#include "../core/wheel.hpp"
#include "../leasemap/shared_tables.hpp"
#include "../retained/read.hpp"
#include "as_owner.hpp"
#include "long_return.hpp"
#include "queue_notes.hpp"
#include "queue_options.hpp"

namespace baton {

namespace {

// Makes creators and droppers of one name take turns, to the end of the transaction.
void lock_name(const char* name) {
  Oid table = get_relname_relid("queue", baton_internal_namespace());
  uint32 hash = DatumGetUInt32(hash_any(reinterpret_cast<const unsigned char*>(name), static_cast<int>(strlen(name))));
  LockDatabaseObject(table, hash, 0, ExclusiveLock);
}

Oid view_of(const char* name) { return get_relname_relid(name, baton_queue_namespace()); }

Oid segment_oid(int32 id, int segment) {
  char name[NAMEDATALEN];
  segment_name(id, segment, name);
  return get_relname_relid(name, baton_data_namespace());
}

// Finds the queue, makes changers of it take turns, and reads it again under that lock.
Queue* lock_own_queue(text* name, const char* what) {
  Queue* q = find_queue(name);
  if (!object_owner_is_me(RelationRelationId, q->view))
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to %s it", q->name, what)));
  LockRelationOid(q->view, ShareUpdateExclusiveLock);
  return find_queue(name);
}

// ---- create

void create_segment(const Queue* q, int n, const char* owner) {
  char name[NAMEDATALEN];
  segment_name(q->id, n, name);
  const char* t = psprintf("baton_data.%s", name);
  run(
      psprintf("CREATE %sTABLE %s OF baton.message USING heap WITH (autovacuum_enabled = false, "
               "toast.autovacuum_enabled = false,"
               " vacuum_truncate = false, toast.vacuum_truncate = false, toast_tuple_target = 8160)",
               q->durability == Durability::kVolatile ? "UNLOGGED " : "", t));
  run(psprintf("ALTER TABLE %s ALTER COLUMN payload SET STORAGE MAIN, ALTER COLUMN payload_bytes SET STORAGE MAIN", t));
  run(psprintf("CREATE INDEX %s_map ON %s USING baton_lease (id, lane, generation, failures, not_before, routing_key)",
               name, t));
  if (q->replicable) run(psprintf("ALTER TABLE %s ADD CONSTRAINT %s_pkey PRIMARY KEY (id)", t, name));
  run(psprintf(
      "CREATE TRIGGER refuse_update BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION baton_internal.refuse_update()",
      t));
  run(psprintf("COMMENT ON TABLE %s IS %s", t, quote_literal_cstr(psprintf("segment %d of queue \"%s\"", n, q->name))));
  run(psprintf("ALTER TABLE %s OWNER TO %s", t, owner));
}

// The query of a queue's view: its segments and, since 0.2.0, what it has in shared tables.
char* view_query(const Queue* q) {
  StringInfoData s;
  initStringInfo(&s);
  for (int n = 0; n < q->segment_count; n++) {
    char name[NAMEDATALEN];
    segment_name(q->id, n, name);
    appendStringInfo(
        &s,
        "%sSELECT m.id, baton_internal.message_state(s.resolved, s.due) AS state, m.message_id, m.routing_key,"
        " m.message_class, coalesce(m.priority, 5) AS priority, m.enqueued_at, s.due AS not_before, m.expires_at, "
        "s.generation, s.failures,"
        " CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.worker END AS worker,"
        " CASE WHEN s.resolved IN ('claimed', 'settling') THEN s.deadline END AS lease_until, m.headers, "
        "m.payload_ref, m.payload, m.payload_bytes"
        " FROM baton_data.%s m JOIN baton_internal.map_slots('baton_data.%s'::pg_catalog.regclass) s ON s.tid = m.ctid"
        " WHERE baton_internal.message_state(s.resolved, s.due) IS NOT NULL",
        n == 0 ? "" : " UNION ALL ", name, name);
  }
  if (has_later_options())
    appendStringInfo(&s,
                     " UNION ALL SELECT m.id, m.state, m.message_id, m.routing_key, m.message_class, m.priority, m.enqueued_at, m.not_before,"
                     " m.expires_at, m.generation, m.failures, m.worker, m.lease_until, m.headers, m.payload_ref, m.payload, m.payload_bytes"
                     " FROM baton_internal.shared_messages(%d) m",
                     q->id);
  return s.data;
}

void create_view(const Queue* q, const char* owner) {
  const char* view = psprintf("baton_queue.%s", quote_identifier(q->name));
  run(psprintf("CREATE VIEW %s AS %s", view, view_query(q)));
  run(
      psprintf("CREATE TRIGGER message_insert INSTEAD OF INSERT ON %s FOR EACH ROW EXECUTE FUNCTION "
               "baton_internal.view_insert()",
               view));
  run(
      psprintf("CREATE TRIGGER message_insert_done AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION "
               "baton_internal.view_insert_done()",
               view));
  run(
      psprintf("CREATE TRIGGER message_refuse INSTEAD OF UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION "
               "baton_internal.view_refuse()",
               view));
  // Refused before any message is looked at, which UPDATE or DELETE alone do not allow, and when there is none.
  run(
      psprintf("CREATE TRIGGER message_refuse_all BEFORE UPDATE OR DELETE ON %s FOR EACH STATEMENT EXECUTE FUNCTION "
               "baton_internal.view_refuse()",
               view));
  run(psprintf("COMMENT ON VIEW %s IS %s", view,
               quote_literal_cstr(
                   psprintf("queue \"%s\": INSERT = may enqueue, UPDATE = may claim and settle, SELECT = may look,"
                            " DELETE = may purge and redrive",
                            q->name))));
  // Monitoring looks at everything but the content. Granted here and not in some list of ours, so that \dp shows it.
  run(
      psprintf("GRANT SELECT (id, state, message_id, routing_key, message_class, priority, enqueued_at, not_before, "
               "expires_at, generation,"
               " failures, worker, lease_until) ON %s TO pg_monitor",
               view));
  run(psprintf("ALTER VIEW %s OWNER TO %s", view, owner));
}

// Gives the view of a queue (0: of all) the query that this version makes it with: in the upgrade script, and for a copy that
// comes from a dump of an earlier version. A damaged queue's view stays as it is.
int refresh_views(int32 id) {
  run(psprintf("SELECT v.id FROM baton_internal.visible_queue v WHERE v.sound AND %d IN (0, v.id) ORDER BY v.id", id));
  SPITupleTable* sound = SPI_tuptable;
  // Queues are never members of the extension, also when its script makes something of theirs.
  bool in_script = creating_extension;
  creating_extension = false;
  for (uint64 i = 0; i < sound->numvals; i++) {
    bool null;
    Queue* q = find_queue_by_id(DatumGetInt32(SPI_getbinval(sound->vals[i], sound->tupdesc, 1, &null)));
    if (q) run(psprintf("CREATE OR REPLACE VIEW baton_queue.%s AS %s", quote_identifier(q->name), view_query(q)));
  }
  creating_extension = in_script;
  return static_cast<int>(sound->numvals);
}

void insert_definition(const Queue* q) {
  Oid types[] = {INT4OID, TEXTOID, INT4OID,     INT8OID,     OIDOID,      INT4OID,     INT8OID,
                 TEXTOID, BOOLOID, BOOLOID,     INTERVALOID, INTERVALOID, INTERVALOID, INTERVALOID,
                 INT4OID, INT4OID, INTERVALOID, INTERVALOID, INTERVALOID, INT4OID,     INT4OID};
  Datum values[] = {Int32GetDatum(q->id),
                    CStringGetTextDatum(q->name),
                    Int32GetDatum(q->incarnation),
                    Int64GetDatum(static_cast<int64>(GetSystemIdentifier())),
                    ObjectIdGetDatum(MyDatabaseId),
                    Int32GetDatum(q->segment_count),
                    Int64GetDatum(q->segment_bytes),
                    CStringGetTextDatum(durability_word(q->durability)),
                    BoolGetDatum(q->claim_flush),
                    BoolGetDatum(q->replicable),
                    PointerGetDatum(make_interval(q->lease)),
                    PointerGetDatum(make_interval(q->min_lease)),
                    PointerGetDatum(make_interval(q->max_lease)),
                    PointerGetDatum(make_interval(q->max_lifetime)),
                    Int32GetDatum(q->max_attempts),
                    Int32GetDatum(q->claim_ceiling),
                    PointerGetDatum(make_interval(q->backoff)),
                    PointerGetDatum(make_interval(q->max_backoff)),
                    PointerGetDatum(make_interval(q->max_delay)),
                    Int32GetDatum(q->max_payload_bytes),
                    Int32GetDatum(q->max_headers_bytes)};
  static_assert(sizeof(types) / sizeof(types[0]) == sizeof(values) / sizeof(values[0]));
  run_with(
      "INSERT INTO baton_internal.queue (id, name, incarnation, home_system, home_database, segments, segment_bytes, "
      "durability,"
      " claim_flush, replicable, lease, min_lease, max_lease, max_lifetime, max_attempts, claim_ceiling, backoff, "
      "max_backoff,"
      " max_delay, max_payload_bytes, max_headers_bytes)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)",
      sizeof(types) / sizeof(types[0]), types, values);
}

// What SQL of before 0.2.0 has no columns for.
void save_later_options(const Queue* q) {
  if (!has_later_options()) return;
  Oid types[] = {INTERVALOID, INTERVALOID, TEXTOID, BOOLOID, INTERVALOID, BOOLOID, INT4OID};
  Datum values[] = {PointerGetDatum(make_interval(q->retention)),
                    PointerGetDatum(make_interval(q->replay_window)),
                    CStringGetTextDatum(q->keep_expired ? "keep" : "drop"),
                    BoolGetDatum(q->expiry_ends_lease),
                    PointerGetDatum(make_interval(q->start_within)),
                    BoolGetDatum(q->notify),
                    Int32GetDatum(q->id)};
  static_assert(sizeof(types) / sizeof(types[0]) == sizeof(values) / sizeof(values[0]));
  run_with(
      "UPDATE baton_internal.queue SET retention = $1, replay_window = $2, expired = $3, expiry_ends_lease = $4,"
      " start_within = $5, notify = $6 WHERE id = $7",
      sizeof(types) / sizeof(types[0]), types, values);
}

int32 new_incarnation() {
  int32 n = 0;
  while (n <= 0)
    if (!pg_strong_random(&n, sizeof(n)))
      ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not obtain random bytes")));
    else
      n &= 0x7fffffff;
  return n;
}

// The next id whose relations' names are free: a restore that left some behind must not stop new queues.
int32 new_id() {
  for (;;) {
    int64 id = 0;
    if (!fetch_int64("SELECT pg_catalog.nextval('baton_internal.queue_id_seq')", &id)) elog(ERROR, "no queue id");
    if (!OidIsValid(segment_oid(static_cast<int32>(id), 0))) return static_cast<int32>(id);
  }
}

// ---- drop

// What the queue has in shared tables: their slots are settled by the mover when it meets them.
void drop_shared_messages(const Queue* q) {
  purge_long_claims(q->id);
  const SharedKind kinds[] = {SharedKind::kLater, SharedKind::kLong};
  for (SharedKind kind : kinds) {
    int count = kind == SharedKind::kLater ? kWheelTables : kLongTables;
    for (int n = 0; n < count; n++) {
      Oid table = shared_table_oid(kind, n);
      if (OidIsValid(table)) run(psprintf("DELETE FROM baton_data.%s WHERE queue_id = %d", quote_identifier(get_rel_name(table)), q->id));
    }
  }
}

// Unsettled messages in the segments. A segment that is gone counts as empty.
int64 count_unsettled(const Queue* q) {
  int64 total = 0;
  for (int n = 0; n < q->segment_count; n++) {
    if (!OidIsValid(segment_oid(q->id, n))) continue;
    char name[NAMEDATALEN];
    segment_name(q->id, n, name);
    int64 here = 0;
    fetch_int64(
        psprintf("SELECT pg_catalog.count(*) FROM baton_internal.map_slots('baton_data.%s'::pg_catalog.regclass) s"
                 " WHERE baton_internal.is_unsettled(s.resolved)",
                 name),
        &here);
    total += here;
  }
  int64 elsewhere = 0;
  if (has_later_options())
    fetch_int64(psprintf("SELECT ready + scheduled + claimed + settling FROM baton_internal.shared_counts(%d)", q->id), &elsewhere);
  return total + elsewhere;
}

void refuse_to_discard(const Queue* q) {
  int64 unsettled = count_unsettled(q);
  int64 quarantined = 0;
  fetch_int64(psprintf("SELECT pg_catalog.count(*) FROM baton_data.quarantined WHERE queue_id = %d", q->id),
              &quarantined);
  int64 retained = count_retained(q->id);
  if (unsettled == 0 && quarantined == 0 && retained == 0) return;
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("queue \"%s\" is not empty", q->name),
                  errdetail("It holds " INT64_FORMAT " unsettled, " INT64_FORMAT " quarantined and " INT64_FORMAT
                            " retained messages.",
                            unsettled, quarantined, retained),
                  errhint("SELECT baton.drop_queue(%s, discard => true) drops them with the queue.",
                          quote_literal_cstr(q->name))));
}

void refuse_to_drop_held(const Queue* q) {
  text* held = read_hold(q->id);
  if (!held) return;
  ereport(ERROR,
          (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("queue \"%s\" is on hold", q->name),
           errdetail("Its reason is \"%s\".", text_to_cstring(held)), errhint("Let baton.unhold end the hold first.")));
}

// Retained messages of the queue stay in the tables of all queues until their time is over. Nobody can name them any
// more: ids of queues are not used again.
void drop_relations(const Queue* q, Oid view) {
  if (OidIsValid(view)) run(psprintf("DROP VIEW baton_queue.%s", quote_identifier(q->name)));
  for (int n = 0; n < q->segment_count; n++)
    if (OidIsValid(segment_oid(q->id, n))) run(psprintf("DROP TABLE baton_data.q%d_%d", q->id, n));
  run(psprintf("DROP SEQUENCE IF EXISTS baton_data.q%d_id", q->id));
  drop_shared_messages(q);
  run(psprintf("DELETE FROM baton_data.quarantined WHERE queue_id = %d", q->id));
  run(psprintf("DELETE FROM baton_data.evidence WHERE queue_id = %d", q->id));
  run(psprintf("DELETE FROM baton_internal.queue WHERE id = %d", q->id));
}

void set_paused(FunctionCallInfo fcinfo, const char* verb, bool paused) {
  require_writable(verb);
  Queue* q = lock_own_queue(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), verb);
  if (q->paused == paused) return;
  Oid view = q->view;
  int32 id = q->id;
  Elevated e = become_extension_owner();
  run(psprintf("UPDATE baton_internal.queue SET paused = %s WHERE id = %d", paused ? "true" : "false", id));
  become_caller(e);
  forget_queue(view);
  if (!paused) note_resumed(id);
}

}  // namespace

}  // namespace baton

using namespace baton;

BATON_SQL_FUNCTION(baton_create_queue)
{
  require_writable("create_queue");
  Queue q;
  memset(&q, 0, sizeof(q));
  queue_name(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), q.name);
  bool if_not_exists = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
  default_options(&q);
  read_common_options(fcinfo, 2, &q);
  read_segments(fcinfo, 2 + kCommonOptions, &q);
  read_segment_bytes(fcinfo, 3 + kCommonOptions, &q);
  if (!PG_ARGISNULL(4 + kCommonOptions)) q.replicable = PG_GETARG_BOOL(4 + kCommonOptions);
  read_later_options(fcinfo, 5 + kCommonOptions, &q);
  check_options(&q);

  Oid schema = baton_queue_namespace();
  const char* caller = quote_identifier(GetUserNameFromId(GetUserId(), false));
  if (namespace_aclcheck(schema, GetUserId(), ACL_CREATE) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to create queue \"%s\"", q.name),
                    errhint("GRANT CREATE ON SCHEMA baton_queue TO %s;", caller)));

  lock_name(q.name);
  Queue existing;
  bool defined = read_definition(q.name, &existing);
  if (defined && if_not_exists) {
    ereport(NOTICE, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("queue \"%s\" already exists, skipping", q.name)));
    PG_RETURN_BOOL(false);
  }
  bool has_view = OidIsValid(view_of(q.name));
  if (defined && has_view)
    ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("queue \"%s\" already exists", q.name)));
  if (defined)
    ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("queue \"%s\" already exists", q.name),
                    errdetail("Its view has been dropped or renamed."),
                    errhint("SELECT baton.drop_queue(%s) removes what is left of it.", quote_literal_cstr(q.name))));
  if (has_view)
    ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("cannot create queue \"%s\"", q.name),
                    errdetail("baton_queue.%s is in its place and is not a queue.", quote_identifier(q.name))));

  Elevated e = become_extension_owner();
  q.id = new_id();
  q.incarnation = new_incarnation();
  insert_definition(&q);
  save_later_options(&q);
  run(psprintf("CREATE SEQUENCE baton_data.q%d_id AS bigint CACHE 1", q.id));
  run(psprintf("COMMENT ON SEQUENCE baton_data.q%d_id IS %s", q.id,
               quote_literal_cstr(psprintf("message ids of queue \"%s\"", q.name))));
  run(psprintf("ALTER SEQUENCE baton_data.q%d_id OWNER TO %s", q.id, caller));
  for (int n = 0; n < q.segment_count; n++) create_segment(&q, n, caller);
  create_view(&q, caller);
  become_caller(e);
  PG_RETURN_BOOL(true);
}

BATON_SQL_FUNCTION(baton_alter_queue)
{
  require_writable("alter_queue");
  char name[NAMEDATALEN];
  queue_name(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), name);
  Oid view = view_of(name);
  Queue old;
  if (!OidIsValid(view) || !read_definition(name, &old))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", name)));
  Oid segment = segment_oid(old.id, 0);
  if (!object_owner_is_me(RelationRelationId, view) ||
      (OidIsValid(segment) && !object_owner_is_me(RelationRelationId, segment)))
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to alter it", name)));
  LockRelationOid(view, ShareUpdateExclusiveLock);
  if (!read_definition(name, &old))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", name)));

  Queue q = old;
  read_common_options(fcinfo, 1, &q);
  read_segment_bytes(fcinfo, 1 + kCommonOptions, &q);
  read_later_options(fcinfo, 2 + kCommonOptions, &q);
  check_options(&q);
  if ((q.durability == Durability::kVolatile) != (old.durability == Durability::kVolatile))
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("durability of queue \"%s\" cannot be changed from %s to %s", name,
                           durability_word(old.durability), durability_word(q.durability)),
                    errdetail("A volatile queue has unlogged segments from its creation on."),
                    errhint("Create another queue and let this one run empty.")));

  const char* owner = quote_identifier(GetUserNameFromId(get_rel_owner(view), false));
  Elevated e = become_extension_owner();
  Oid types[] = {INTERVALOID, INTERVALOID, INTERVALOID, INTERVALOID, INT4OID, INT4OID, INTERVALOID, INTERVALOID,
                 INTERVALOID, INT4OID,     INT4OID,     TEXTOID,     BOOLOID, INT8OID, INT4OID};
  Datum values[] = {PointerGetDatum(make_interval(q.lease)),
                    PointerGetDatum(make_interval(q.min_lease)),
                    PointerGetDatum(make_interval(q.max_lease)),
                    PointerGetDatum(make_interval(q.max_lifetime)),
                    Int32GetDatum(q.max_attempts),
                    Int32GetDatum(q.claim_ceiling),
                    PointerGetDatum(make_interval(q.backoff)),
                    PointerGetDatum(make_interval(q.max_backoff)),
                    PointerGetDatum(make_interval(q.max_delay)),
                    Int32GetDatum(q.max_payload_bytes),
                    Int32GetDatum(q.max_headers_bytes),
                    CStringGetTextDatum(durability_word(q.durability)),
                    BoolGetDatum(q.claim_flush),
                    Int64GetDatum(q.segment_bytes),
                    Int32GetDatum(q.id)};
  static_assert(sizeof(types) / sizeof(types[0]) == sizeof(values) / sizeof(values[0]));
  run_with(
      "UPDATE baton_internal.queue SET lease = $1, min_lease = $2, max_lease = $3, max_lifetime = $4, max_attempts = "
      "$5,"
      " claim_ceiling = $6, backoff = $7, max_backoff = $8, max_delay = $9, max_payload_bytes = $10, max_headers_bytes "
      "= $11,"
      " durability = $12, claim_flush = $13, segment_bytes = $14 WHERE id = $15",
      sizeof(types) / sizeof(types[0]), types, values);
  save_later_options(&q);
  // after ALTER VIEW ... OWNER TO, the segments follow
  for (int n = 0; n < q.segment_count; n++)
    if (OidIsValid(segment_oid(q.id, n)) && get_rel_owner(segment_oid(q.id, n)) != get_rel_owner(view))
      run(psprintf("ALTER TABLE baton_data.q%d_%d OWNER TO %s", q.id, n, owner));
  Oid sequence = get_relname_relid(psprintf("q%d_id", q.id), baton_data_namespace());
  if (OidIsValid(sequence) && get_rel_owner(sequence) != get_rel_owner(view))
    run(psprintf("ALTER SEQUENCE baton_data.q%d_id OWNER TO %s", q.id, owner));
  become_caller(e);
  forget_queue(view);
  PG_RETURN_VOID();
}

BATON_SQL_FUNCTION(baton_drop_queue)
{
  require_writable("drop_queue");
  char name[NAMEDATALEN];
  queue_name(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0), name);
  bool if_exists = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
  bool discard = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);

  lock_name(name);
  Queue q;
  if (!read_definition(name, &q)) {
    if (!if_exists) ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", name)));
    ereport(NOTICE, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist, skipping", name)));
    PG_RETURN_BOOL(false);
  }
  // A view that is not the segments' owner's was put there by somebody else: it is none of ours, and stays.
  Oid segment = segment_oid(q.id, 0);
  Oid view = view_of(name);
  if (OidIsValid(view) && OidIsValid(segment) && get_rel_owner(view) != get_rel_owner(segment) && !superuser())
    view = InvalidOid;
  Oid decides = OidIsValid(view) ? view : segment;
  bool mine = OidIsValid(decides) ? object_owner_is_me(RelationRelationId, decides)
                                  : has_privs_of_role(GetUserId(), extension_owner());
  if (!mine)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of queue \"%s\" to drop it", name)));

  refuse_to_drop_held(&q);
  Elevated e = become_extension_owner();
  if (!discard) {
    // Once without a lock, so that a refusal disturbs nobody, and once when no transaction can add any more.
    refuse_to_discard(&q);
  }
  for (int n = 0; n < q.segment_count; n++)
    if (OidIsValid(segment_oid(q.id, n)))
      run(psprintf("LOCK TABLE ONLY baton_data.q%d_%d IN ACCESS EXCLUSIVE MODE", q.id, n));
  if (!discard) refuse_to_discard(&q);
  // Whoever puts the queue on hold has its view locked.
  if (OidIsValid(view)) LockRelationOid(view, AccessExclusiveLock);
  refuse_to_drop_held(&q);
  drop_relations(&q, view);
  become_caller(e);
  PG_RETURN_BOOL(true);
}

BATON_SQL_FUNCTION(baton_adopt)
{
  require_writable("adopt");
  int32 id = 0;
  if (!PG_ARGISNULL(0)) id = lock_own_queue(PG_GETARG_TEXT_PP(0), "adopt")->id;
  Oid caller = GetUserId();
  int64 system = static_cast<int64>(GetSystemIdentifier());
  Elevated e = become_extension_owner();
  run(psprintf("SELECT id, name FROM baton_internal.queue WHERE (%d IN (0, id)) AND (home_system <> " INT64_FORMAT
               " OR home_database <> %u) ORDER BY id",
               id, system, MyDatabaseId));
  SPITupleTable* rows = SPI_tuptable;
  int adopted = 0;
  for (uint64 i = 0; i < rows->numvals; i++) {
    bool null;
    int32 one = DatumGetInt32(SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &null));
    Oid view = view_of(SPI_getvalue(rows->vals[i], rows->tupdesc, 2));
    if (!OidIsValid(view) || !has_privs_of_role(caller, get_rel_owner(view))) continue;
    run(psprintf("UPDATE baton_internal.queue SET home_system = " INT64_FORMAT ", home_database = %u WHERE id = %d",
                 system, MyDatabaseId, one));
    forget_queue(view);
    refresh_views(one);
    note_resumed(one);
    adopted++;
  }
  become_caller(e);
  PG_RETURN_INT32(adopted);
}

BATON_SQL_FUNCTION(baton_refresh_views)
{
  Elevated e = become_extension_owner();
  int n = refresh_views(0);
  become_caller(e);
  PG_RETURN_INT32(n);
}

BATON_SQL_FUNCTION(baton_pause)
{
  set_paused(fcinfo, "pause", true);
  PG_RETURN_VOID();
}

BATON_SQL_FUNCTION(baton_resume)
{
  set_paused(fcinfo, "resume", false);
  PG_RETURN_VOID();
}
