// The server's clock: the only one that decides. A superuser's test setting may shift it.
#pragma once

#include "guc.hpp"
#include "postgres.hpp"

namespace baton {

inline TimestampTz clock_now() { return GetCurrentTimestamp() + static_cast<int64>(clock_offset_ms) * 1000; }

}  // namespace baton
