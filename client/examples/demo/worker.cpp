// One worker, one process, so that it can be killed like one. The effect of a receipt is a row in the ledger, written
// in the transaction that settles the message: a fence undoes it, and so does kill -9.

#include "demo.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace demo {

namespace {

volatile std::sig_atomic_t told_to_leave = 0;

void on_term(int) { told_to_leave = 1; }

// The foreman gone, there is nobody to work for.
bool is_over() { return told_to_leave != 0 || ::getppid() == 1; }

void tell(const std::string& word, std::int64_t number) {
  const std::string line = word + ' ' + std::to_string(number) + '\n';
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(1);
}

constexpr const char* kClaim = "SELECT token, payload, generation FROM baton.claim($1, $2, $3, $4)";
constexpr const char* kWriteLedger =
    "INSERT INTO baton_demo.ledger (transfer_id, debit, credit, amount_cents, worker, via, generation)"
    " SELECT (p ->> 'transfer')::bigint, (p ->> 'debit')::int, (p ->> 'credit')::int, (p ->> 'amount_cents')::bigint, $2, $3, $4"
    " FROM (SELECT $1::jsonb AS p) AS receipt";
// a handler that lives in the database altogether: one statement
constexpr const char* kTakeIntoLedger =
    "INSERT INTO baton_demo.ledger (transfer_id, debit, credit, amount_cents, worker, via, generation)"
    " SELECT (payload ->> 'transfer')::bigint, (payload ->> 'debit')::int, (payload ->> 'credit')::int,"
    "        (payload ->> 'amount_cents')::bigint, $3, 'take', NULL"
    " FROM baton.take($1, $2, $3)";

class Worker {
 public:
  explicit Worker(const std::string& name)
      : name_(name), connection_("application_name=" + name), random_(std::random_device{}()) {}

  void run(const std::string& kind) {
    if (kind == "ack") repeat([this] { return claim_and_ack(); });
    else if (kind == "batch") repeat([this] { return claim_and_ack_batch(); });
    else if (kind == "take") repeat([this] { return take(); });
    else if (kind == "late") repeat([this] { return be_late(); });
    else if (kind == "hoard") repeat([this] { return hoard(); });
    else if (kind == "midway") repeat([this] { return stop_midway(); });
    else if (kind == "midtake") repeat([this] { return stop_in_take(); });
    else throw std::runtime_error("no such worker: " + kind);
  }

 private:
  bool one_in(int n) { return std::uniform_int_distribution<int>(1, n)(random_) == 1; }

  // Waits without a snapshot until there is something, then works until there is nothing.
  template <class Step>
  void repeat(Step step) {
    while (!is_over()) {
      {
        pqxx::nontransaction tx(connection_);
        tx.exec_params("CALL baton.wait($1, '500 ms')", kReceipts);
      }
      while (!is_over() && step()) {
      }
    }
  }

  pqxx::result claim(int max_items, const char* lease = nullptr) {
    // not in a transaction: a claim acts at once, and one that is rolled back counts as a failure
    pqxx::nontransaction tx(connection_);
    auto claimed = tx.exec_params(kClaim, kReceipts, name_, max_items, lease);
    tell("in_hand", static_cast<std::int64_t>(claimed.size()));
    return claimed;
  }

  template <class Row>
  void write_ledger(pqxx::transaction_base& tx, const Row& delivery, const char* via) {
    tx.exec_params(kWriteLedger, delivery["payload"].c_str(), name_, via, delivery["generation"].c_str());
  }

  // Runs a transaction; false when a fence undid it, which is counted by its SQLSTATE.
  template <class Body>
  bool transact(Body body) {
    try {
      pqxx::work tx(connection_);
      body(tx);
      tx.commit();
      return true;
    } catch (const pqxx::sql_error& e) {
      const std::string state(e.sqlstate());
      if (state != "QB001" && state != "QB002" && state != "QB003") throw;
      tell("fenced_" + state, 1);
      return false;
    }
  }

  bool claim_and_ack() {
    const auto claimed = claim(5);
    auto left = static_cast<std::int64_t>(claimed.size());
    for (const auto& delivery : claimed) {
      const std::string token = delivery["token"].c_str();
      if (one_in(50)) {
        if (transact([&](auto& tx) {
              tx.exec_params("SELECT state FROM baton.release($1, '100 ms', 'not now', failed => false)", token);
            })) {
          tell("released", 1);
        }
      } else if (one_in(50)) {
        pqxx::nontransaction tx(connection_);
        tx.exec_params("SELECT outcome FROM baton.hand_back($1)", array_literal({token}));
        tell("handed_back", 1);
      } else if (transact([&](auto& tx) {
                   write_ledger(tx, delivery, "ack");
                   tx.exec_params("SELECT baton.ack($1)", token);
                 })) {
        tell("acked", 1);
      }
      tell("in_hand", --left);
    }
    return !claimed.empty();
  }

  bool claim_and_ack_batch() {
    const auto claimed = claim(20);
    if (claimed.empty()) return false;
    std::vector<std::string> tokens;
    for (const auto& delivery : claimed) tokens.emplace_back(delivery["token"].c_str());
    // all or none: what a fence undoes is delivered again when its lease ends
    if (transact([&](auto& tx) {
          for (const auto& delivery : claimed) write_ledger(tx, delivery, "ack_batch");
          tx.exec_params("SELECT baton.ack_batch($1)", array_literal(tokens));
        })) {
      tell("acked", static_cast<std::int64_t>(tokens.size()));
    }
    tell("in_hand", 0);
    return true;
  }

  bool take() {
    pqxx::work tx(connection_);
    const auto taken = static_cast<std::int64_t>(tx.exec_params(kTakeIntoLedger, kReceipts, 5, name_).affected_rows());
    if (taken > 0 && one_in(20)) {
      tx.abort();
      tell("taken_and_rolled_back", taken);
    } else {
      tx.commit();
      if (taken > 0) tell("taken", taken);
    }
    return taken > 0;
  }

  // Outlives its lease, then comes back and tries to finish, as a process does that was suspended.
  bool be_late() {
    const auto claimed = claim(2, "300 ms");
    if (claimed.empty()) return false;
    // sometimes before, mostly after somebody else has it
    std::this_thread::sleep_for(std::chrono::milliseconds(one_in(2) ? 302 : 450));
    for (const auto& delivery : claimed) {
      if (transact([&](auto& tx) {
            write_ledger(tx, delivery, "late");
            tx.exec_params("SELECT baton.ack($1)", delivery["token"].c_str());
          })) {
        tell("late_but_acked", 1);
      }
      try {
        pqxx::nontransaction tx(connection_);
        tx.exec_params("SELECT baton.extend($1)", delivery["token"].c_str());
        tell("late_but_extended", 1);
      } catch (const pqxx::sql_error&) {
        tell("extensions_refused", 1);
      }
    }
    tell("in_hand", 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return true;
  }

  [[noreturn]] void wait_for_the_end() {
    tell("victim", 1);
    std::this_thread::sleep_for(std::chrono::seconds(30));
    throw std::runtime_error("should have been killed");
  }

  bool hoard() {
    if (claim(10).empty()) return false;
    wait_for_the_end();
  }

  bool stop_midway() {
    const auto claimed = claim(5);
    if (claimed.empty()) return false;
    pqxx::work tx(connection_);
    for (const auto& delivery : claimed) {
      write_ledger(tx, delivery, "ack, not committed");
      tx.exec_params("SELECT baton.ack($1)", delivery["token"].c_str());
    }
    wait_for_the_end();
  }

  bool stop_in_take() {
    pqxx::work tx(connection_);
    const auto taken = static_cast<std::int64_t>(tx.exec_params(kTakeIntoLedger, kReceipts, 5, name_).affected_rows());
    if (taken == 0) return false;
    tell("in_hand", taken);
    wait_for_the_end();
  }

  std::string name_;
  pqxx::connection connection_;
  std::mt19937 random_;
};

}  // namespace

int run_worker(const std::string& kind, const std::string& name) {
  struct sigaction action = {};
  action.sa_handler = on_term;
  ::sigaction(SIGTERM, &action, nullptr);
  Worker(name).run(kind);
  return 0;
}

}  // namespace demo
