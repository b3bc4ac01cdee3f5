// The names of workers behind the numbers in slots, kept in baton_internal.worker_name for display after a restart.
#pragma once

#include "worker_slot.hpp"

namespace baton {

// Writes down the names that claimed since they were last written down, and now and then removes some that no claim can
// have any more.
void keep_worker_names(StepRunner run);

}  // namespace baton
