// See debug_point.hpp.
#include "debug_point.hpp"

namespace baton {

void reach_debug_point(const char* name) {
  Size n = strlen(name);
  if (strncmp(debug_point, name, n) != 0 || debug_point[n] != ':') return;
  const char* action = debug_point + n + 1;
  if (strcmp(action, "error") == 0)
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("debug point \"%s\"", name)));
  if (strcmp(action, "panic") == 0) ereport(PANIC, (errmsg("debug point \"%s\"", name)));
  if (strcmp(action, "wait") == 0) {
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0xBA70, 1, 2);
    (void)LockAcquire(&tag, ShareLock, false, false);
    LockRelease(&tag, ShareLock, false);
  }
}

}  // namespace baton
