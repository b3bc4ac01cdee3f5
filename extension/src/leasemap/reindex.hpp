// REINDEX ... CONCURRENTLY and lease maps.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

// Runs one statement as the server would.
using RunUtility = void (*)(PlannedStmt* planned, ProcessUtilityContext context, void* arg);

// For the utility hook. True: the command has been dealt with.
bool reindex_around_maps(PlannedStmt* planned, ProcessUtilityContext context, RunUtility run, void* arg);

}  // namespace baton
