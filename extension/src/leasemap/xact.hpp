// What the current transaction has done to maps, and what has to be told to others when it ends. The lists are this
// backend's; they grow when something is noted, so that the callbacks of commit, abort and prepare allocate nothing,
// raise nothing and touch no buffer: an ERROR there would take the cluster down.
#pragma once

#include "../pg/queue.hpp"
#include "hints.hpp"

namespace baton {

void register_xact_callbacks();

// The transaction has done something to a queue of this durability class: its commit is flushed and, for kReplicated,
// confirmed by a synchronous standby, whatever the session's synchronous_commit says.
void require_durability(Durability durability);
extern bool wait_for_standbys;  // false in workers: their transactions are flushed here and wait for nobody

// ---- enqueued: published at commit where the frontier has passed it
void reserve_enqueue_notes(int n);
// first: offered before everything that waits in the lane, whether or not the frontier has come by (a moved message has waited
// for its turn before).
void note_enqueued(const LaneKey& lane, const Range& range, uint32 page_ordinal, TimestampTz due, bool first, int32 queue_id);

// ---- claims: made void when their (sub)transaction rolls back
void reserve_claim_notes(int n);
void note_claim(const LaneKey& lane, BlockNumber block, uint8 index, uint64 nonce, int32 queue_id);
// A claim that fails inside the verb itself is free; after end_verb a rollback counts as a failure.
void begin_verb();
// What is done next is done for the message of this claim alone: if the verb fails there, that message counts a failure,
// though the others count none. One that cannot be read would keep its queue from working for ever. 0: for nobody's.
void blame_claim(uint64 nonce);
void end_verb();

// ---- settlements: a release is published at commit, anything at abort
void reserve_settle_notes(int n);
void note_settled(const LaneKey& lane, BlockNumber block, uint8 index, TimestampTz due, TimestampTz deadline, bool release, int32 queue_id);
// Settlements that are undone are offered again no earlier than this; 0: at once. For messages that nobody may have anyway
// and that would fail for the next one as well. Ends with the transaction.
void offer_undone_after(TimestampTz at);

// ---- the range a claimer has reserved and not looked at yet, and what it has to put back when it is through.
// Every way out gives both back: end_looking, or the (sub)abort callback.
// begin_looking preallocates. What goes back is there for others: as many of them are woken, less the one that a look on
// behalf of a waiting session has found for itself.
void begin_looking(int32 queue_id);
void hold_range(const LaneKey& lane, const Range& range);
void shrink_range(int looked_at);  // the first slots of the held range have been dealt with
void drop_range();                 // all of it has
void put_back(const LaneKey& lane, const Range& range, TimestampTz at);  // at = 0: at once
void end_looking(bool found_for_myself);

// ---- a sweep that does not come to its end is asked for again
void note_sweep(const LaneKey& lane);
void sweep_done();

}  // namespace baton
