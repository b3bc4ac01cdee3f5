// The launcher: finds the databases that have the extension and keeps a mover and a retention worker in each.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

void register_launcher();

// The extension may have come or gone in this database: look again. Safe in callbacks. wake_launcher() (pg/shmem.hpp)
// does the rest.
void mark_database_changed(Oid database);

}  // namespace baton
