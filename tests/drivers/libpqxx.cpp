// libpqxx: literals and parameters without casts, and the worker loop of README.md (readme_loop.hpp). Built by
// test_libpqxx.sh.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "readme_loop.hpp"

namespace {

std::string text(const pqxx::result& r) {
  std::string out;
  for (const auto& row : r)
    for (const auto& field : row) out += (out.empty() ? "" : " ") + std::string(field.is_null() ? "-" : field.c_str());
  return out;
}

void same(const std::string& what, const std::string& expected, const std::string& actual) {
  if (expected == actual) return;
  std::cout << what << ": expected " << expected << ", got " << actual << "\n";
  std::exit(1);
}

template <typename... Args>
pqxx::result ask(pqxx::connection& db, const std::string& sql, const Args&... args) {
  pqxx::nontransaction tx{db};
  return tx.exec_params(sql, args...);
}

void verbs(pqxx::connection& db) {
  const std::string queue = "libpqxx";
  same("create_queue", "t", text(ask(db, "SELECT baton.create_queue($1, backoff => $2)", queue, "0 s")));
  same("enqueue, literals", "1", text(ask(db, "SELECT id FROM baton.enqueue('libpqxx', '{\"n\": 1}')")));
  same("enqueue", "2 ready", text(ask(db, "SELECT * FROM baton.enqueue($1, $2)", queue, "{\"n\": 2}")));
  same("enqueue_batch", "3 4", text(ask(db, "SELECT id FROM baton.enqueue_batch($1, $2)", queue, "{3,4}")));
  same("enqueue_batch, ARRAY", "5 6",
       text(ask(db, "SELECT id FROM baton.enqueue_batch($1, ARRAY[$2, $3]::jsonb[], routing_keys => ARRAY[$4, $5])", queue, "5", "6", "a", "b")));
  same("claim, literals", "1", text(ask(db, "SELECT id FROM baton.claim('libpqxx', 'w1', lease => '1 min')")));
  const pqxx::result claimed = ask(db, "SELECT token FROM baton.claim($1, $2, max_items => $3, lease => $4)", queue, "w1", 10, "1 min");
  same("claim", "5", std::to_string(claimed.size()));
  std::vector<std::string> token;
  for (const auto& row : claimed) token.push_back(row[0].as<std::string>());
  same("ack", "acked", text(ask(db, "SELECT baton.ack($1)", token[0])));
  same("ack_batch", "1", text(ask(db, "SELECT baton.ack_batch(ARRAY[$1])", token[1])));
  same("ack_batch, literal", "1", text(ask(db, "SELECT baton.ack_batch($1)", "{" + token[2] + "}")));
  same("release", "ready - 1", text(ask(db, "SELECT * FROM baton.release($1, delay => $2, reason => $3)", token[3], "0 s", "again")));
  same("settle", "1 acked 2 already_settled",
       text(ask(db, "SELECT * FROM baton.settle(ARRAY[$1, $2], ARRAY[$3])", token[4], token[0], "ack")));
  same("wait", "ready", text(ask(db, "CALL baton.wait($1, $2)", queue, "5 s")));
  same("wait, literals", "ready", text(ask(db, "CALL baton.wait('libpqxx')")));
  same("take", "5 1", text(ask(db, "SELECT id, failures FROM baton.take($1)", queue)));
  try {
    ask(db, "SELECT baton.ack($1)", token[0]);
    same("ack twice", "an error", "none");
  } catch (const pqxx::sql_error& error) {
    same("ack twice", "QB003", std::string(error.sqlstate()));
  }
  same("check", "", text(ask(db, "SELECT * FROM baton.check('libpqxx')")));
}

void loop(pqxx::connection& db) {
  ask(db, "SELECT baton.create_queue('loop_cpp', backoff => '0.1 s')");
  ask(db, "CREATE TABLE ledger_cpp (n int)");
  ask(db, "SELECT id FROM baton.enqueue_batch('loop_cpp', ARRAY(SELECT to_jsonb(n) FROM generate_series(0, 19) n))");
  int done = 0;
  int failed = 0;
  const auto handle = [&](pqxx::work& tx, const std::string& payload) {
    tx.exec_params("INSERT INTO ledger_cpp VALUES ($1)", payload);
    if (payload == "7" && failed++ == 0) throw std::runtime_error("seven, for the first time");
    done++;
  };
  work(db, "loop_cpp", handle, [&] { return done == 20; });
  same("effects", "20 190", text(ask(db, "SELECT count(DISTINCT n), sum(n) FROM ledger_cpp")));
  same("left", "", text(ask(db, "SELECT id FROM baton_queue.loop_cpp")));
  same("reason", "seven, for the first time", text(ask(db, "SELECT reason FROM baton.evidence('loop_cpp', 8)")));
  same("check", "", text(ask(db, "SELECT * FROM baton.check('loop_cpp')")));
}

}  // namespace

int main() {
  try {
    pqxx::connection db;
    verbs(db);
    loop(db);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
  return 0;
}
