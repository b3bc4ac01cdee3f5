// See subtransaction.hpp.
#include "subtransaction.hpp"

namespace baton {

bool in_subtransaction(void (*body)(void*), void* argument) {
  MemoryContext context = CurrentMemoryContext;
  ResourceOwner owner = CurrentResourceOwner;
  volatile bool done = false;
  BeginInternalSubTransaction(nullptr);
  MemoryContextSwitchTo(context);
  PG_TRY();
  {
    body(argument);
    ReleaseCurrentSubTransaction();
    done = true;
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData* e = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    if (e->sqlerrcode == ERRCODE_QUERY_CANCELED) ReThrowError(e);
    FreeErrorData(e);
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  CurrentResourceOwner = owner;
  return done;
}

}  // namespace baton
