// The backend's cache of queue definitions. A definition is read from baton_internal.queue once and kept until the
// relation cache entry of the queue's view is invalidated (alter_queue and its like do that).
#pragma once

#include "postgres.hpp"

namespace baton {

constexpr int kMaxSegments = 64;
constexpr int kMaxQueueName = NAMEDATALEN - 1;

enum class Durability : uint8 { kLocal, kReplicated, kAsync, kVolatile };

bool parse_durability(const char* word, Durability* out);

struct Queue {
  Oid view;  // hash key; carries the privileges
  bool valid;
  int32 id;
  int32 incarnation;
  char name[NAMEDATALEN];
  bool at_home;  // home_system and home_database are this cluster and database
  bool paused;
  bool claim_flush;
  bool replicable;
  Durability durability;
  int segment_count;
  int64 segment_bytes;
  // microseconds
  int64 lease;
  int64 min_lease;
  int64 max_lease;
  int64 max_lifetime;
  int64 backoff;
  int64 max_backoff;
  int64 max_delay;
  int32 max_attempts;
  int32 claim_ceiling;
  int32 max_payload_bytes;
  int32 max_headers_bytes;
  // Since 0.2.0; a database with older SQL has them at their defaults.
  int64 retention;      // how long an acknowledged message is kept, 0 = not
  int64 replay_window;  // ... and can be replayed at least
  int64 start_within;   // a claim that is not started by then may be taken away, 0 = no limit
  bool keep_expired;    // expired messages go into quarantine instead of being dropped
  bool expiry_ends_lease;
  bool notify;
  bool held;                        // a legal hold: nothing that is retained may go
  TimestampTz rotation_held_until;  // no truncation before; 0 = not held
  bool has_buckets;  // this database's SQL has due-time buckets
  Oid id_sequence;
  Oid heap[kMaxSegments];
  Oid map[kMaxSegments];  // as of the last load; InvalidOid while unknown
  int write_segment;      // the segment this backend last wrote to: a guess, checked against shared memory
};

// By name, exactly as given. 42704 if there is none; 22023 for NULL, empty or over 63 bytes.
Queue* find_queue(text* name);
Queue* find_queue_by_name(const char* name, bool missing_ok);
// By id, for tokens. nullptr if there is none.
Queue* find_queue_by_id(int32 id);
// The queue's incarnation as committed by now; takes no lock on its segments.
int32 incarnation_now(const Queue* queue);
// The name out of an argument, into NAMEDATALEN bytes: exactly as given, never truncated. 22023 as for find_queue.
void queue_name(text* name, char* out);
// The row of baton_internal.queue as it is now, past the cache and without its relations (view, heap, map, id_sequence
// stay zero). For verbs that repair or drop a queue whose relations are damaged.
bool read_definition(const char* name, Queue* out);
// Ids of all queues of this database, in id order; palloc'd.
int list_queue_ids(int32** ids);

// Holds of all queues of this database, as committed by now.
struct QueueHolds {
  int32* held;  // ids of those on legal hold, in order; palloc'd
  int count;
  TimestampTz rotation_until;  // the latest of all; 0: none
};
QueueHolds read_queue_holds();
text* read_hold(int32 queue_id);  // the reason of a queue's legal hold, nullptr for none

// Those that ask for NOTIFY, in no order; palloc'd.
struct QueueName {
  int32 id;
  char name[NAMEDATALEN];
};
int list_notified_queues(QueueName** names);
// The channel of a queue, into NAMEDATALEN bytes: from its number, since a name may have any character and full length.
void notify_channel(int32 queue_id, char* out);

// The privileges of a queue are those of its view. Raises 42501 naming the queue and the privilege.
void check_privilege(const Queue* queue, AclMode mode);
bool has_privilege(const Queue* queue, AclMode mode);
bool can_look(const Queue* queue);  // SELECT on the view or any column, or membership in pg_monitor

// Verbs that change anything: enabled, not in recovery, not read-only, not parallel. verb is the name for the message.
void require_writable(const char* verb);

Oid baton_internal_namespace();
Oid baton_data_namespace();
Oid baton_queue_namespace();
Oid extension_owner();  // owner of schema baton_internal; InvalidOid when the extension is not installed

struct SipKeyPair {
  uint64 k0;
  uint64 k1;
};
SipKeyPair token_key();

Oid get_rel_owner(Oid relation);  // InvalidOid if there is no such relation

// Does the SQL of this database know the options that came with 0.2.0?
bool has_later_options();

void register_queue_cache();
void forget_queue(Oid view);  // tells every backend at commit that the definition changed

// name without the implied limits: "q<id>_<segment>", "q<id>_id"
void segment_name(int32 queue_id, int segment, char* out);

}  // namespace baton
