// Points where a test can make the server stop, fail or die. Off and costless (one comparison of a pointed-to byte)
// unless a superuser sets pg_baton.debug_point to "<name>:<action>", action one of error, panic, or wait. "wait" parks
// the process on advisory lock (0xBA70, 1), which the test holds.
#pragma once

#include "guc.hpp"

namespace baton {

void reach_debug_point(const char* name);

inline void debug_here(const char* name) {
  if (debug_point && debug_point[0]) reach_debug_point(name);
}

}  // namespace baton
