// A session that wait has told "ready" owes the wake-up to somebody until it claims: if it exits or waits again first,
// the next waiter is woken.
#pragma once

#include "../pg/postgres.hpp"

namespace baton {

void owe_wake(int32 queue_id);
void wake_used(int32 queue_id);
void pay_wake_debt();

}  // namespace baton
