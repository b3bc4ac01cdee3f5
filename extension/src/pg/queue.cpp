// The backend's cache of queue definitions, see queue.hpp. The callbacks here only mark: they run while any catalog is
// being opened, so they may neither allocate nor look anything up. A definition is built in a local copy and stored
// at the end, so that an error in the middle of a load leaves an entry that is merely not valid.
#include "queue.hpp"

#include "../leasemap/map.hpp"
#include "guc.hpp"

namespace baton {

namespace {

struct IdEntry {
  int32 id;  // hash key
  Oid view;
};

struct Namespaces {
  bool valid;
  Oid internal;
  Oid data;
  Oid queue;
};

HTAB* queues_by_view = nullptr;
HTAB* views_by_id = nullptr;
Namespaces namespaces = {false, InvalidOid, InvalidOid, InvalidOid};
bool key_valid = false;
SipKeyPair key_cached = {0, 0};
uint32 invalidations = 0;  // a load that saw this move is used once and not kept

void relation_changed(Datum, Oid relation) {
  invalidations++;
  if (queues_by_view == nullptr) return;
  if (OidIsValid(relation)) {
    Queue* q = static_cast<Queue*>(hash_search(queues_by_view, &relation, HASH_FIND, nullptr));
    if (q != nullptr) q->valid = false;
    return;
  }
  HASH_SEQ_STATUS seq;
  hash_seq_init(&seq, queues_by_view);
  while (Queue* q = static_cast<Queue*>(hash_seq_search(&seq))) q->valid = false;
}

void namespace_changed(Datum, SyscacheNumber, uint32) {
  namespaces.valid = false;
  key_valid = false;
}

const Namespaces& schemas() {
  if (!namespaces.valid) {
    Namespaces n;
    n.internal = get_namespace_oid("baton_internal", true);
    n.data = get_namespace_oid("baton_data", true);
    n.queue = get_namespace_oid("baton_queue", true);
    n.valid = OidIsValid(n.internal) && OidIsValid(n.data) && OidIsValid(n.queue);
    namespaces = n;
  }
  return namespaces;
}

Oid need_relation(const char* name, Oid schema) {
  Oid oid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
  if (!OidIsValid(oid))
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension \"pg_baton\" is not installed in this database"),
             errhint("Run CREATE EXTENSION pg_baton.")));
  return oid;
}

int find_column(TupleDesc desc, const char* name) {
  for (int i = 0; i < desc->natts; i++) {
    Form_pg_attribute a = TupleDescAttr(desc, i);
    if (!a->attisdropped && strcmp(NameStr(a->attname), name) == 0) return i + 1;
  }
  return 0;
}

int column(TupleDesc desc, const char* name) {
  if (int n = find_column(desc, name)) return n;
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("the pg_baton of this database has no column \"%s\" in its queue table", name),
                  errhint("Run ALTER EXTENSION pg_baton UPDATE.")));
}

Datum need(HeapTuple tuple, TupleDesc desc, const char* name) {
  bool null;
  Datum d = heap_getattr(tuple, column(desc, name), desc, &null);
  if (null) elog(ERROR, "column \"%s\" of baton_internal.queue is null", name);
  return d;
}

// A column that older SQL does not have, or that is null: false, and *out is left alone.
bool given(HeapTuple tuple, TupleDesc desc, const char* name, Datum* out) {
  int n = find_column(desc, name);
  if (n == 0) return false;
  bool null;
  Datum d = heap_getattr(tuple, n, desc, &null);
  if (!null) *out = d;
  return !null;
}

int64 microseconds(Datum interval) {
  const Interval* i = DatumGetIntervalP(interval);
  return i->time + i->day * USECS_PER_DAY;
}

Durability durability_of(Datum d) {
  char* word = TextDatumGetCString(d);
  Durability result = Durability::kLocal;
  if (!parse_durability(word, &result)) elog(ERROR, "unknown durability \"%s\"", word);
  return result;
}

void scan_key(ScanKey key, TupleDesc desc, const char* name, RegProcedure equal, Datum value) {
  int attno = column(desc, name);
  ScanKeyEntryInitialize(key, 0, static_cast<AttrNumber>(attno), BTEqualStrategyNumber, InvalidOid,
                         TupleDescAttr(desc, attno - 1)->attcollation, equal, value);
}

void read_later_options(HeapTuple t, TupleDesc desc, Queue* out) {
  Datum d;
  if (given(t, desc, "retention", &d)) out->retention = microseconds(d);
  if (given(t, desc, "replay_window", &d)) out->replay_window = microseconds(d);
  if (given(t, desc, "start_within", &d)) out->start_within = microseconds(d);
  if (given(t, desc, "expired", &d)) out->keep_expired = strcmp(TextDatumGetCString(d), "keep") == 0;
  if (given(t, desc, "expiry_ends_lease", &d)) out->expiry_ends_lease = DatumGetBool(d);
  if (given(t, desc, "notify", &d)) out->notify = DatumGetBool(d);
  out->held = given(t, desc, "held", &d);
  if (given(t, desc, "rotation_held_until", &d)) out->rotation_held_until = DatumGetTimestampTz(d);
}

// What is read from the row, before the relations are looked up.
bool read_row(const char* name, int32 id, Queue* out) {
  Oid internal = schemas().internal;
  Relation rel = table_open(need_relation("queue", internal), AccessShareLock);
  TupleDesc desc = RelationGetDescr(rel);
  ScanKeyData key;
  Oid index;
  if (name != nullptr) {
    index = need_relation("queue_name_key", internal);
    scan_key(&key, desc, "name", F_TEXTEQ, CStringGetTextDatum(name));
  } else {
    index = need_relation("queue_pkey", internal);
    scan_key(&key, desc, "id", F_INT4EQ, Int32GetDatum(id));
  }
  // No snapshot given: a new catalog snapshot, so that REPEATABLE READ sees the definition as it is now.
  SysScanDesc scan = systable_beginscan(rel, index, true, nullptr, 1, &key);
  HeapTuple t = systable_getnext(scan);
  if (HeapTupleIsValid(t)) {
    memset(out, 0, sizeof(*out));
    out->id = DatumGetInt32(need(t, desc, "id"));
    strlcpy(out->name, TextDatumGetCString(need(t, desc, "name")), NAMEDATALEN);
    out->incarnation = DatumGetInt32(need(t, desc, "incarnation"));
    out->at_home = static_cast<uint64>(DatumGetInt64(need(t, desc, "home_system"))) == GetSystemIdentifier() &&
                   DatumGetObjectId(need(t, desc, "home_database")) == MyDatabaseId;
    out->paused = DatumGetBool(need(t, desc, "paused"));
    out->claim_flush = DatumGetBool(need(t, desc, "claim_flush"));
    out->replicable = DatumGetBool(need(t, desc, "replicable"));
    out->durability = durability_of(need(t, desc, "durability"));
    out->segment_count = DatumGetInt32(need(t, desc, "segments"));
    out->segment_bytes = DatumGetInt64(need(t, desc, "segment_bytes"));
    out->lease = microseconds(need(t, desc, "lease"));
    out->min_lease = microseconds(need(t, desc, "min_lease"));
    out->max_lease = microseconds(need(t, desc, "max_lease"));
    out->max_lifetime = microseconds(need(t, desc, "max_lifetime"));
    out->backoff = microseconds(need(t, desc, "backoff"));
    out->max_backoff = microseconds(need(t, desc, "max_backoff"));
    out->max_delay = microseconds(need(t, desc, "max_delay"));
    out->max_attempts = DatumGetInt32(need(t, desc, "max_attempts"));
    out->claim_ceiling = DatumGetInt32(need(t, desc, "claim_ceiling"));
    out->max_payload_bytes = DatumGetInt32(need(t, desc, "max_payload_bytes"));
    out->max_headers_bytes = DatumGetInt32(need(t, desc, "max_headers_bytes"));
    read_later_options(t, desc, out);
    if (out->segment_count < 1 || out->segment_count > kMaxSegments)
      elog(ERROR, "queue \"%s\" has %d segments", out->name, out->segment_count);
  }
  bool found = HeapTupleIsValid(t);
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  return found;
}

// False: the queue has been dropped since its definition was read.
bool find_relations(Queue* q) {
  Oid data = schemas().data;
  char name[NAMEDATALEN];
  for (int n = 0; n < q->segment_count; n++) {
    segment_name(q->id, n, name);
    q->heap[n] = get_relname_relid(name, data);
    Relation heap = OidIsValid(q->heap[n]) ? try_relation_open(q->heap[n], AccessShareLock) : nullptr;
    if (heap == nullptr) {
      Queue now;
      if (!read_row(nullptr, q->id, &now)) return false;
      ereport(ERROR,
              (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
               errmsg("queue \"%s\" has lost its segment baton_data.%s", q->name, name),
               errhint("Restore the table, or give up what is left with SELECT baton.drop_queue(%s, discard => true).",
                       quote_literal_cstr(q->name))));
    }
    q->map[n] = find_map(heap);
    relation_close(heap, AccessShareLock);
  }
  q->has_buckets = OidIsValid(get_relname_relid("later_0", data));
  snprintf(name, NAMEDATALEN, "q%d_id", q->id);
  q->id_sequence = get_relname_relid(name, data);
  if (!OidIsValid(q->id_sequence))
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("queue \"%s\" has lost its sequence baton_data.%s", q->name, name)));
  return true;
}

// The view carries the privileges, so it has to be the queue's own and not something put in its place after the owner
// renamed or dropped it: only the segments' owner can have made it.
void check_view(const Queue* q) {
  Oid owner = get_rel_owner(q->view);
  if (get_rel_relkind(q->view) == RELKIND_VIEW && owner == get_rel_owner(q->heap[0])) return;
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("baton_queue.%s and the segments of queue \"%s\" have different owners",
                         quote_identifier(q->name), q->name),
                  errhint("After ALTER VIEW ... OWNER TO, run SELECT baton.alter_queue(%s) as a superuser.",
                          quote_literal_cstr(q->name))));
}

Queue* cached(Oid view) {
  if (queues_by_view == nullptr) return nullptr;
  return static_cast<Queue*>(hash_search(queues_by_view, &view, HASH_FIND, nullptr));
}

Queue* keep(const Queue& fresh, bool valid) {
  if (queues_by_view == nullptr) {
    HASHCTL ctl;
    memset(&ctl, 0, sizeof(ctl));
    ctl.keysize = sizeof(Oid);
    ctl.entrysize = sizeof(Queue);
    ctl.hcxt = TopMemoryContext;
    queues_by_view = hash_create("pg_baton queues", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  }
  if (views_by_id == nullptr) {
    HASHCTL ctl;
    memset(&ctl, 0, sizeof(ctl));
    ctl.keysize = sizeof(int32);
    ctl.entrysize = sizeof(IdEntry);
    ctl.hcxt = TopMemoryContext;
    views_by_id = hash_create("pg_baton queue ids", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  }
  IdEntry* id = static_cast<IdEntry*>(hash_search(views_by_id, &fresh.id, HASH_ENTER, nullptr));
  id->view = fresh.view;
  bool found;
  Queue* q = static_cast<Queue*>(hash_search(queues_by_view, &fresh.view, HASH_ENTER, &found));
  if (!found) q->valid = false;
  *q = fresh;
  q->valid = valid;
  return q;
}

// nullptr: it has been dropped meanwhile.
Queue* load(Oid view, Queue* fresh, uint32 seen) {
  fresh->view = view;
  if (!find_relations(fresh)) return nullptr;
  check_view(fresh);
  return keep(*fresh, seen == invalidations);
}

[[noreturn]] void no_such_queue(const char* name) {
  Oid schema = schemas().queue;
  Oid view = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
  ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("queue \"%s\" does not exist", name),
                  OidIsValid(view) ? errdetail("There is a relation baton_queue.%s, but no queue of that name.",
                                               quote_identifier(name))
                                   : 0,
                  errhint("SELECT name FROM baton.queues lists the queues you may see.")));
}

struct IdList {
  int32* ids;
  int count;
  int room;
};

void add_id(IdList* list, int32 id) {
  if (list->count == list->room) {
    list->room = Max(64, list->room * 2);
    Size bytes = sizeof(int32) * static_cast<Size>(list->room);
    list->ids = static_cast<int32*>(list->ids ? repalloc(list->ids, bytes) : palloc(bytes));
  }
  list->ids[list->count++] = id;
}

struct HoldList {
  IdList held;
  TimestampTz rotation_until;
};

// In id order, as committed by now: the ordered scan takes a new catalog snapshot.
void each_queue(void (*visit)(HeapTuple, TupleDesc, void*), void* argument) {
  Oid internal = schemas().internal;
  Oid table = OidIsValid(internal) ? get_relname_relid("queue", internal) : InvalidOid;
  if (!OidIsValid(table)) return;
  Relation rel = table_open(table, AccessShareLock);
  Relation index = index_open(need_relation("queue_pkey", internal), AccessShareLock);
  SysScanDesc scan = systable_beginscan_ordered(rel, index, nullptr, 0, nullptr);
  while (HeapTuple t = systable_getnext_ordered(scan, ForwardScanDirection)) visit(t, RelationGetDescr(rel), argument);
  systable_endscan_ordered(scan);
  index_close(index, AccessShareLock);
  table_close(rel, AccessShareLock);
}

void add_every_id(HeapTuple t, TupleDesc desc, void* list) { add_id(static_cast<IdList*>(list), DatumGetInt32(need(t, desc, "id"))); }

void add_hold(HeapTuple t, TupleDesc desc, void* list) {
  auto* l = static_cast<HoldList*>(list);
  Datum d;
  if (given(t, desc, "held", &d)) add_id(&l->held, DatumGetInt32(need(t, desc, "id")));
  if (given(t, desc, "rotation_held_until", &d)) l->rotation_until = Max(l->rotation_until, DatumGetTimestampTz(d));
}

struct HoldReason {
  int32 queue_id;
  text* reason;
};

void find_hold(HeapTuple t, TupleDesc desc, void* argument) {
  auto* r = static_cast<HoldReason*>(argument);
  Datum d;
  if (DatumGetInt32(need(t, desc, "id")) == r->queue_id && given(t, desc, "held", &d)) r->reason = DatumGetTextPCopy(d);
}

}  // namespace

bool has_later_options() {
  Oid table = need_relation("queue", schemas().internal);
  return get_attnum(table, "retention") != InvalidAttrNumber;
}

void register_queue_cache() {
  CacheRegisterRelcacheCallback(relation_changed, static_cast<Datum>(0));
  CacheRegisterSyscacheCallback(NAMESPACEOID, namespace_changed, static_cast<Datum>(0));
}

Oid get_rel_owner(Oid relation) {
  HeapTuple t = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
  if (!HeapTupleIsValid(t)) return InvalidOid;
  Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(t))->relowner;
  ReleaseSysCache(t);
  return owner;
}

void forget_queue(Oid view) { CacheInvalidateRelcacheByRelid(view); }

Oid baton_internal_namespace() { return schemas().internal; }
Oid baton_data_namespace() { return schemas().data; }
Oid baton_queue_namespace() { return schemas().queue; }

Oid extension_owner() {
  HeapTuple t = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schemas().internal));
  if (!HeapTupleIsValid(t)) return InvalidOid;
  Oid owner = reinterpret_cast<Form_pg_namespace>(GETSTRUCT(t))->nspowner;
  ReleaseSysCache(t);
  return owner;
}

SipKeyPair token_key() {
  if (key_valid) return key_cached;
  Relation rel = table_open(need_relation("token_key", schemas().internal), AccessShareLock);
  SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
  HeapTuple t = systable_getnext(scan);
  SipKeyPair key = {0, 0};
  bool found = HeapTupleIsValid(t);
  if (found) {
    const bytea* bytes = DatumGetByteaPP(need(t, RelationGetDescr(rel), "key"));
    if (VARSIZE_ANY_EXHDR(bytes) != sizeof(key)) elog(ERROR, "token key has a wrong length");
    memcpy(&key, VARDATA_ANY(bytes), sizeof(key));
  }
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  if (!found)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("this database has no token key"),
                    errhint("Run INSERT INTO baton_internal.token_key (key) VALUES (baton_internal.random_bytes(16)) "
                            "as a superuser.")));
  key_cached = key;
  key_valid = true;
  return key;
}

void segment_name(int32 queue_id, int segment, char* out) { snprintf(out, NAMEDATALEN, "q%d_%d", queue_id, segment); }

Queue* find_queue_by_name(const char* name, bool missing_ok) {
  for (;;) {
    // A change of the definition that was committed before this call is seen by it.
    AcceptInvalidationMessages();
    Oid schema = schemas().queue;
    Oid view = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
    Queue fresh;
    uint32 seen = invalidations;
    if (OidIsValid(view)) {
      Queue* q = cached(view);
      if (q != nullptr && q->valid) return q;
    }
    if (!OidIsValid(view) || !read_row(name, 0, &fresh)) break;
    Queue* q = load(view, &fresh, seen);
    if (q != nullptr) return q;
    // Dropped while its segments' locks were waited for; there may be another one of the name by now.
  }
  if (missing_ok) return nullptr;
  no_such_queue(name);
}

Queue* find_queue(text* name) {
  char buffer[NAMEDATALEN];
  queue_name(name, buffer);
  return find_queue_by_name(buffer, false);
}

Queue* find_queue_by_id(int32 id) {
  AcceptInvalidationMessages();
  if (views_by_id != nullptr) {
    IdEntry* e = static_cast<IdEntry*>(hash_search(views_by_id, &id, HASH_FIND, nullptr));
    Queue* q = e != nullptr ? cached(e->view) : nullptr;
    if (q != nullptr && q->valid && q->id == id) return q;
  }
  Oid schema = schemas().queue;
  if (!OidIsValid(schema)) return nullptr;
  Queue fresh;
  uint32 seen = invalidations;
  if (!read_row(nullptr, id, &fresh)) return nullptr;
  Oid view = get_relname_relid(fresh.name, schema);
  if (!OidIsValid(view)) return nullptr;
  return load(view, &fresh, seen);
}

int32 incarnation_now(const Queue* queue) {
  AcceptInvalidationMessages();
  if (queue->valid) return queue->incarnation;
  Queue fresh;
  return read_row(nullptr, queue->id, &fresh) ? fresh.incarnation : queue->incarnation;
}

int list_queue_ids(int32** ids) {
  IdList list = {static_cast<int32*>(palloc(sizeof(int32))), 0, 1};
  each_queue(add_every_id, &list);
  *ids = list.ids;
  return list.count;
}

QueueHolds read_queue_holds() {
  HoldList list = {{nullptr, 0, 0}, 0};
  each_queue(add_hold, &list);
  return QueueHolds{list.held.ids, list.held.count, list.rotation_until};
}

text* read_hold(int32 queue_id) {
  HoldReason r = {queue_id, nullptr};
  each_queue(find_hold, &r);
  return r.reason;
}

int list_notified_queues(QueueName** names) {
  Oid internal = schemas().internal;
  int count = 0;
  int room = 16;
  *names = static_cast<QueueName*>(palloc(sizeof(QueueName) * room));
  Oid table = OidIsValid(internal) ? get_relname_relid("queue", internal) : InvalidOid;
  if (!OidIsValid(table)) return 0;
  Relation rel = table_open(table, AccessShareLock);
  SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
  HeapTuple t;
  while (HeapTupleIsValid(t = systable_getnext(scan))) {
    TupleDesc desc = RelationGetDescr(rel);
    Datum d;
    if (!given(t, desc, "notify", &d) || !DatumGetBool(d)) continue;
    if (count == room) {
      room *= 2;
      *names = static_cast<QueueName*>(repalloc(*names, sizeof(QueueName) * room));
    }
    (*names)[count].id = DatumGetInt32(need(t, desc, "id"));
    strlcpy((*names)[count++].name, TextDatumGetCString(need(t, desc, "name")), NAMEDATALEN);
  }
  systable_endscan(scan);
  table_close(rel, AccessShareLock);
  return count;
}

void notify_channel(int32 queue_id, char* out) { snprintf(out, NAMEDATALEN, "baton_%d", queue_id); }

bool read_definition(const char* name, Queue* out) { return read_row(name, 0, out); }

void queue_name(text* name, char* out) {
  if (name == nullptr)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a queue name must not be null")));
  Size length = VARSIZE_ANY_EXHDR(name);
  if (length < 1 || length > kMaxQueueName)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a queue name must have 1 to %d bytes", kMaxQueueName),
             errdetail("The name given has %d.", static_cast<int>(length))));
  memcpy(out, VARDATA_ANY(name), length);
  out[length] = '\0';
}

bool parse_durability(const char* word, Durability* out) {
  if (strcmp(word, "local") == 0)
    *out = Durability::kLocal;
  else if (strcmp(word, "replicated") == 0)
    *out = Durability::kReplicated;
  else if (strcmp(word, "async") == 0)
    *out = Durability::kAsync;
  else if (strcmp(word, "volatile") == 0)
    *out = Durability::kVolatile;
  else
    return false;
  return true;
}

bool has_privilege(const Queue* queue, AclMode mode) {
  return pg_class_aclcheck(queue->view, GetUserId(), mode) == ACLCHECK_OK;
}

void check_privilege(const Queue* queue, AclMode mode) {
  if (has_privilege(queue, mode)) return;
  const char* privilege = "DELETE";
  const char* verbs = "purge, cancel, revoke, redrive and replay";
  if (mode & ACL_INSERT) {
    privilege = "INSERT";
    verbs = "enqueue";
  } else if (mode & ACL_UPDATE) {
    privilege = "UPDATE";
    verbs = "claim, take and settle";
  } else if (mode & ACL_SELECT) {
    privilege = "SELECT";
    verbs = "look into the queue";
  }
  ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for queue \"%s\"", queue->name),
                  errdetail("%s on its view is needed to %s.", privilege, verbs),
                  errhint("GRANT %s ON baton_queue.%s TO %s;", privilege, quote_identifier(queue->name),
                          quote_identifier(GetUserNameFromId(GetUserId(), false)))));
}

bool can_look(const Queue* queue) {
  Oid me = GetUserId();
  return pg_class_aclcheck(queue->view, me, ACL_SELECT) == ACLCHECK_OK ||
         pg_attribute_aclcheck_all(queue->view, me, ACL_SELECT, ACLMASK_ANY) == ACLCHECK_OK ||
         has_privs_of_role(me, ROLE_PG_MONITOR);
}

void require_writable(const char* verb) {
  require_enabled();
  PreventCommandDuringRecovery(verb);
  PreventCommandIfReadOnly(verb);
  PreventCommandIfParallelMode(verb);
}

}  // namespace baton
