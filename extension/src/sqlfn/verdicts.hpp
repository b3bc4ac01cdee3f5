// Arguments of the settling verbs: tokens, verdicts, delays, reasons.
#pragma once

#include "settle_tokens.hpp"

namespace baton {

// One settlement per element of a text[] of tokens; a null element is an invalid token. Null array: 22023.
Settlement* settlements_from_tokens(FunctionCallInfo fcinfo, int arg, int* count);

// verdicts (one per token or one for all): ack, release, release_unfailed, quarantine. delays, reasons likewise.
void read_verdicts(FunctionCallInfo fcinfo, int verdict_arg, int delay_arg, int reason_arg, Settlement* items, int n);

// The queue a token names, nullptr if it names none.
Queue* queue_of_token(text* token);
// The longest delay its queue allows for a release; a limit that fits any when the token names none.
int64 release_delay_limit(text* token);

}  // namespace baton
