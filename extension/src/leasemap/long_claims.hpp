// Finding a claim in the long segments (shared_tables.hpp): by queue, message and nonce. Its lane follows from the first two,
// so that a look reads a page or two.
#pragma once

#include "map.hpp"
#include "shared_tables.hpp"

namespace baton {

enum class LongFind {
  kNone,    // nothing of this message
  kOther,   // the message, under another claim
  kLapsed,  // it ended there without having been settled by its token, and its slot has lost the nonce: *place
  kFound,   // this claim: *place
};

// In one long segment that is opened. What the slot says about the claim has to be judged under its page's lock.
LongFind find_in_long(const Segment& segment, int32 queue_id, int64 id, uint32 generation, uint64 nonce, Place* place);

}  // namespace baton
