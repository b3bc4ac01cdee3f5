// Work whose failure stays inside.
#pragma once

#include "postgres.hpp"

namespace baton {

// Runs body in a subtransaction. False: it failed and was rolled back. A cancel is not its failure and is raised.
bool in_subtransaction(void (*body)(void*), void* argument);

}  // namespace baton
