// Session-bound claims (pg_baton.session_claims): when the backend exits, however it comes to that, its live claims are
// ended at once and count a failure, with the queue's backoff. What this list does not reach (a lock that somebody holds, a
// server that was killed) ends with the lease, or with the server's life (end_orphan in core/slot.hpp).
#pragma once

#include "../leasemap/map.hpp"
#include "../pg/queue.hpp"

namespace baton {

// Makes room for n claims of the queue; may raise. Drops entries of claims that are over.
void reserve_session_claims(const Queue& queue, int n);
// Remembers a claim; cannot fail.
void note_session_claim(Oid heap, const Place& place, const Slot& slot, int32 queue_id);

}  // namespace baton
