// What hold_rotation means to those who truncate what all queues share.
#pragma once

namespace baton {

// Does no queue hold rotation? Whoever is about to waits for the end of this transaction. Waits for nobody itself: false also
// when somebody is changing a definition.
bool no_rotation_is_held();

}  // namespace baton
