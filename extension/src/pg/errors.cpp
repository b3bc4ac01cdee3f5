// See errors.hpp.
#include "errors.hpp"

namespace baton {

void raise_bad_argument(const char* field, const char* what) {
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s %s", field, what)));
  pg_unreachable();
}

}  // namespace baton
