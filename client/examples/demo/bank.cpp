// A bank. Each transfer moves money between two accounts and enqueues its receipt in the same transaction; some
// transactions are rolled back, whole or to a savepoint. Workers write each receipt into the ledger. Several are killed
// with receipts in hand, some come back after their lease. In the end ledger and accounts must agree to the cent.
//
// The ledger has no unique constraint, on purpose: a receipt that is settled twice must be seen, not prevented by
// something that is not the queue.

#include "demo.hpp"
#include "foreman.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <set>
#include <thread>

namespace demo {

namespace {

constexpr int kAccounts = 200;
constexpr std::int64_t kOpeningCents = 100'000;
constexpr int kClients = 4;

struct ClientTally {
  std::int64_t transfers = 0, transactions = 0, rolled_back = 0, savepoints_undone = 0, overdrafts = 0, delayed = 0;
  std::string error;
};

class Client {
 public:
  Client(int number, ClientTally& tally)
      : name_("client-" + std::to_string(number)), connection_("application_name=" + name_), tally_(tally),
        random_(static_cast<unsigned>(number)) {}

  void run(Clock::time_point end) {
    while (Clock::now() < end) one_transaction();
  }

 private:
  int upto(int n) { return std::uniform_int_distribution<int>(1, n)(random_); }

  // In ascending order, so that clients lock accounts in one order and never each other. Which of two pays is drawn
  // anew for each transfer.
  std::vector<int> accounts(int how_many) {
    std::set<int> chosen;
    while (static_cast<int>(chosen.size()) < how_many) chosen.insert(upto(kAccounts));
    return {chosen.begin(), chosen.end()};
  }

  void one_transaction() {
    const int dice = upto(100);
    std::int64_t moved = 0;
    try {
      pqxx::work tx(connection_);
      if (dice <= 80) {
        const auto a = accounts(2);
        transfer(tx, a[0], a[1], upto(2000), dice <= 2 ? "200 ms" : nullptr);
        moved = 1;
        if (dice <= 2) tally_.delayed++;
      } else if (dice <= 88) {
        const auto a = accounts(2);
        transfer(tx, a[0], a[1], upto(2000), nullptr);
        tx.abort();
        tally_.rolled_back++;
        return;
      } else if (dice <= 93) {
        // SQL and not pqxx::subtransaction: that of 6.4 sets no savepoint when its first call is exec_params
        const auto a = accounts(4);
        tx.exec("SAVEPOINT undone");
        transfer(tx, a[0], a[1], upto(2000), nullptr);
        tx.exec("ROLLBACK TO SAVEPOINT undone");
        transfer(tx, a[2], a[3], upto(2000), nullptr);
        moved = 1;
        tally_.savepoints_undone++;
      } else if (dice <= 95) {
        const auto a = accounts(4);
        tx.exec("SAVEPOINT kept");
        transfer(tx, a[0], a[1], upto(2000), nullptr);
        tx.exec("RELEASE SAVEPOINT kept");
        transfer(tx, a[2], a[3], upto(2000), nullptr);
        moved = 2;
      } else if (dice <= 98) {
        moved = many_transfers(tx);
      } else {
        // more than anybody has: the CHECK of the account stops it when the receipt is enqueued already
        const auto a = accounts(2);
        enqueue(tx, 0, a[0], a[1], 1, nullptr);
        transfer(tx, a[0], a[1], 100 * kOpeningCents * kAccounts, nullptr);
        throw std::logic_error("an account was overdrawn");
      }
      tx.commit();
    } catch (const pqxx::sql_error& e) {
      if (std::string(e.sqlstate()) != "23514") throw;
      tally_.overdrafts++;
      return;
    }
    tally_.transactions++;
    tally_.transfers += moved;
  }

  std::int64_t move_money(pqxx::transaction_base& tx, int debit, int credit, std::int64_t amount_cents) {
    const auto change = [&](int account, std::int64_t cents) {
      tx.exec_params("UPDATE baton_demo.account SET balance_cents = balance_cents + $2 WHERE id = $1", account, cents);
    };
    // the lower number first, whatever the direction
    if (debit < credit) change(debit, -amount_cents);
    change(credit, amount_cents);
    if (debit > credit) change(debit, -amount_cents);
    return tx.exec_params("INSERT INTO baton_demo.transfer (debit, credit, amount_cents, client) VALUES ($1, $2, $3, $4) RETURNING id",
                          debit, credit, amount_cents, name_)[0][0]
        .as<std::int64_t>();
  }

  static std::string receipt(std::int64_t id, int debit, int credit, std::int64_t amount_cents) {
    return "{\"transfer\": " + std::to_string(id) + ", \"debit\": " + std::to_string(debit) + ", \"credit\": " + std::to_string(credit) +
           ", \"amount_cents\": " + std::to_string(amount_cents) + "}";
  }

  void enqueue(pqxx::transaction_base& tx, std::int64_t id, int debit, int credit, std::int64_t amount_cents, const char* delay) {
    tx.exec_params("SELECT id, state FROM baton.enqueue($1, $2, message_id => $3, delay => $4)", kReceipts,
                   receipt(id, debit, credit, amount_cents), "transfer-" + std::to_string(id), delay);
  }

  void transfer(pqxx::transaction_base& tx, int debit, int credit, std::int64_t amount_cents, const char* delay) {
    if (upto(2) == 1) std::swap(debit, credit);
    enqueue(tx, move_money(tx, debit, credit, amount_cents), debit, credit, amount_cents, delay);
  }

  std::int64_t many_transfers(pqxx::transaction_base& tx) {
    const auto a = accounts(20);
    std::vector<std::string> receipts, names;
    for (std::size_t i = 0; i < a.size(); i += 2) {
      const int amount_cents = upto(2000);
      const auto id = move_money(tx, a[i], a[i + 1], amount_cents);
      receipts.push_back(receipt(id, a[i], a[i + 1], amount_cents));
      names.push_back("transfer-" + std::to_string(id));
    }
    tx.exec_params("SELECT count(*) FROM baton.enqueue_batch($1, $2, message_ids => $3)", kReceipts, array_literal(receipts),
                   array_literal(names));
    return static_cast<std::int64_t>(receipts.size());
  }

  std::string name_;
  pqxx::connection connection_;
  ClientTally& tally_;
  std::mt19937 random_;
};

void make_bank(pqxx::connection& connection) {
  pqxx::work tx(connection);
  tx.exec("SET LOCAL client_min_messages = warning");
  tx.exec("DROP SCHEMA IF EXISTS baton_demo CASCADE");
  tx.exec("CREATE SCHEMA baton_demo");
  tx.exec("CREATE TABLE baton_demo.account (id int PRIMARY KEY, opening_cents bigint NOT NULL,"
          " balance_cents bigint NOT NULL CHECK (balance_cents BETWEEN 0 AND 1000000000)) WITH (fillfactor = 50)");
  tx.exec("CREATE TABLE baton_demo.transfer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, debit int NOT NULL, credit int NOT NULL,"
          " amount_cents bigint NOT NULL, client text NOT NULL)");
  tx.exec("CREATE TABLE baton_demo.ledger (transfer_id bigint NOT NULL, debit int NOT NULL, credit int NOT NULL,"
          " amount_cents bigint NOT NULL, worker text NOT NULL, via text NOT NULL, generation bigint,"
          " written_at timestamptz NOT NULL DEFAULT clock_timestamp())");
  tx.exec_params("INSERT INTO baton_demo.account SELECT n, $2, $2 FROM generate_series(1, $1::int) AS n", kAccounts, kOpeningCents);
  tx.exec_params("SELECT baton.drop_queue($1, if_exists => true, discard => true)", kReceipts);
  // Short, so that what the dead held comes back while we watch; and nothing here is poison, however often it fails.
  tx.exec_params("SELECT baton.create_queue($1, lease => '3 s', max_attempts => 1000, backoff => '50 ms', max_backoff => '200 ms')",
                 kReceipts);
  tx.commit();
}

std::string figure(const char* what, std::int64_t n) {
  char line[120];
  std::snprintf(line, sizeof line, "  %-58s %10s", what, with_commas(n).c_str());
  return line;
}

Books audit(pqxx::connection& connection, std::int64_t transfers_confirmed) {
  Books books;
  {
    pqxx::work tx(connection);
    books.enqueued = count_of(tx, "SELECT count(*) FROM baton_demo.transfer");
    tx.exec("CREATE TEMP TABLE settled AS SELECT transfer_id, count(*) AS times FROM baton_demo.ledger GROUP BY transfer_id");
    books.settled_once = count_of(tx, "SELECT count(*) FROM settled JOIN baton_demo.transfer ON id = transfer_id WHERE times = 1");
    books.doubled = count_of(tx, "SELECT count(*) FROM settled WHERE times > 1");
    books.lost = count_of(tx, "SELECT count(*) FROM baton_demo.transfer WHERE id NOT IN (SELECT transfer_id FROM settled)");
    const auto phantoms = count_of(tx, "SELECT count(*) FROM settled WHERE transfer_id NOT IN (SELECT id FROM baton_demo.transfer)");
    const auto differing = count_of(tx,
        "SELECT count(*) FROM baton_demo.ledger l JOIN baton_demo.transfer t ON t.id = l.transfer_id"
        " WHERE (l.debit, l.credit, l.amount_cents) <> (t.debit, t.credit, t.amount_cents)");
    const auto total = count_of(tx, "SELECT sum(balance_cents) FROM baton_demo.account");
    const auto unbalanced = count_of(tx,
        "SELECT count(*) FROM baton_demo.account a WHERE balance_cents <> opening_cents"
        " + (SELECT coalesce(sum(amount_cents), 0) FROM baton_demo.ledger WHERE credit = a.id)"
        " - (SELECT coalesce(sum(amount_cents), 0) FROM baton_demo.ledger WHERE debit = a.id)");
    tx.commit();

    say(figure("transfers that the clients saw committed", transfers_confirmed));
    say(figure("transfers in the bank's table", books.enqueued));
    say(figure("receipts settled exactly once", books.settled_once));
    say(figure("lost", books.lost));
    say(figure("settled more than once", books.doubled));
    say(figure("settled though their transaction was rolled back", phantoms));
    say(figure("accounts whose balance is not opening plus ledger", unbalanced));
    say(figure("money made or lost, cents", total - kAccounts * kOpeningCents));
    if (transfers_confirmed != books.enqueued) books.complaints.push_back("clients and table disagree about what was committed");
    if (phantoms != 0) books.complaints.push_back(with_commas(phantoms) + " receipts of rolled-back transactions were delivered");
    if (differing != 0) books.complaints.push_back(with_commas(differing) + " ledger rows differ from their transfer");
    if (unbalanced != 0) books.complaints.push_back(with_commas(unbalanced) + " accounts do not balance");
    if (total != kAccounts * kOpeningCents) books.complaints.push_back("money was made or lost");
  }
  check_queue(connection, kReceipts, books);
  say("  baton.check says " + std::string(books.complaints.empty() ? "nothing" : "something, or the books do not balance: see below"));
  return books;
}

}  // namespace

Books run_bank(double seconds) {
  pqxx::connection connection("application_name=demo");
  say("(a) a bank: money and receipt in one transaction");
  make_bank(connection);

  Foreman foreman;
  const std::vector<std::string> staff = {"ack", "ack", "batch", "take", "late"};
  for (const auto& kind : staff) foreman.start(kind);
  say("  " + std::to_string(kClients) + " clients move money for " + std::to_string(static_cast<int>(seconds)) +
      " s; 5 worker processes: 2 ack one by one, 1 acks in batches, 1 takes, 1 is always late");

  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int>(1000 * seconds));
  std::vector<ClientTally> tallies(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; i++) {
    clients.emplace_back([&tally = tallies[static_cast<std::size_t>(i)], i, end] {
      try {
        Client(i + 1, tally).run(end);
      } catch (const std::exception& e) {
        tally.error = first_line(e.what());
      }
    });
  }

  // Every so often somebody dies: one who has claimed and not begun, one who has acked and not committed, one who has
  // taken and not committed, and one of the staff at whatever it happens to do.
  const std::vector<std::string> dying = {"hoard", "midway", "midtake"};
  auto next = Clock::now() + std::chrono::milliseconds(1000);
  for (std::size_t i = 0; Clock::now() < end;) {
    foreman.listen(20);
    if (Clock::now() < next) continue;
    next += std::chrono::milliseconds(700);
    if (i % 4 == 3) foreman.kill_one(staff[i / 4 % 4]);
    else foreman.start(dying[i % 4]);
    i++;
  }
  for (auto& client : clients) client.join();

  ClientTally all;
  Books books;
  for (const auto& t : tallies) {
    all.transfers += t.transfers;
    all.transactions += t.transactions;
    all.rolled_back += t.rolled_back;
    all.savepoints_undone += t.savepoints_undone;
    all.overdrafts += t.overdrafts;
    all.delayed += t.delayed;
    if (!t.error.empty()) books.complaints.push_back("a client failed: " + t.error);
  }
  say("  " + with_commas(all.transactions) + " transactions committed with " + with_commas(all.transfers) + " transfers; " +
      with_commas(all.rolled_back) + " rolled back, " + with_commas(all.overdrafts) + " stopped by a constraint, " +
      with_commas(all.savepoints_undone) + " undone in part by a savepoint");

  foreman.dismiss("late");
  const auto drained_by = Clock::now() + std::chrono::seconds(60);
  const auto drain_from = Clock::now();
  std::int64_t left = 0;
  while ((left = unsettled(connection, kReceipts)) > 0 && Clock::now() < drained_by) foreman.listen(50);
  const auto drain_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - drain_from).count();
  if (left > 0) books.complaints.push_back(with_commas(left) + " receipts were not settled within a minute");
  else say("  the queue was empty " + std::to_string(drain_ms) + " ms after the last client left");
  foreman.dismiss("");
  foreman.wait_for_all(Clock::now() + std::chrono::seconds(20), books);

  const auto fenced = foreman.said("fenced_QB001") + foreman.said("fenced_QB002") + foreman.said("fenced_QB003");
  say("  " + with_commas(foreman.said("acked")) + " acked, " + with_commas(foreman.said("taken")) + " taken, " +
      with_commas(foreman.said("released")) + " released for later, " + with_commas(foreman.said("handed_back")) + " handed back, " +
      with_commas(foreman.said("taken_and_rolled_back")) + " taken and rolled back");
  say("  " + std::to_string(foreman.killed()) + " workers killed with SIGKILL, with " + with_commas(foreman.held_when_killed()) +
      " receipts in hand, and replaced");
  say("  " + with_commas(fenced) + " late acks fenced with what they had written (" + with_commas(foreman.said("fenced_QB001")) +
      " stale generation, " + with_commas(foreman.said("fenced_QB002")) + " lease expired, " +
      with_commas(foreman.said("fenced_QB003")) + " settled by another), " + with_commas(foreman.said("extensions_refused")) +
      " late extensions refused");
  if (foreman.said("late_but_acked") > 0) books.complaints.push_back(with_commas(foreman.said("late_but_acked")) + " acks after the lease were let through");
  if (foreman.said("late_but_extended") > 0) books.complaints.push_back(with_commas(foreman.said("late_but_extended")) + " extensions after the lease were let through");
  if (fenced == 0) books.complaints.push_back("nobody was fenced: the demo did not show what it is for");
  if (foreman.killed() < 3) books.complaints.push_back("hardly anybody was killed: the demo did not show what it is for");

  auto audited = audit(connection, all.transfers);
  audited.complaints.insert(audited.complaints.end(), books.complaints.begin(), books.complaints.end());
  return audited;
}

}  // namespace demo
