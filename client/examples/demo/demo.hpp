// What the parts of the demo share. Written against libpqxx 6.4, 7 and 8 alike; nothing here needs libbaton, so that it
// shows what SQL alone can do.
#pragma once

#include <chrono>
#include <cstdint>
#include <pqxx/pqxx>
#include <string>
#include <vector>

namespace demo {

using Clock = std::chrono::steady_clock;

// Odd names are ordinary names.
constexpr const char* kReceipts = "bank: receipts";
constexpr const char* kWebhooks = "webhooks";

// What one half of the demo came to.
struct Books {
  std::int64_t enqueued = 0, settled_once = 0, lost = 0, doubled = 0;
  std::vector<std::string> complaints;  // anything else that is not as it must be
};

void say(const std::string& line);
std::string with_commas(std::int64_t n);
std::string first_line(const std::string& text);

std::string array_literal(const std::vector<std::string>& elements);

std::int64_t count_of(pqxx::transaction_base& tx, const std::string& sql);

// What is still to be done in a queue, quarantined messages included, and what baton.check says.
std::int64_t unsettled(pqxx::connection& connection, const std::string& queue);
void check_queue(pqxx::connection& connection, const std::string& queue, Books& books);

Books run_bank(double seconds);
Books run_webhooks(const std::string& directory, int rounds);

// One worker process: "ack", "batch", "take", "late", "hoard", "midway" or "midtake".
int run_worker(const std::string& kind, const std::string& name);

}  // namespace demo
