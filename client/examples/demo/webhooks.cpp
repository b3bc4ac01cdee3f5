// Real input: the webhook payloads that GitHub publishes as examples, many times over, by every way into the queue, and
// compared at the other end: as jsonb, and by the digest of what the worker's own connection received.

#include "demo.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace demo {

namespace {

struct Webhook {
  std::string name, event, text;
};

// index.json lists events, each with examples. The server takes it apart: its type json keeps the text as it was written.
std::vector<Webhook> read_webhooks(pqxx::connection& connection, const std::string& directory) {
  std::ifstream in(directory + "/index.json", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  std::vector<Webhook> webhooks;
  if (!in || text.str().empty()) return webhooks;
  pqxx::nontransaction tx(connection);
  for (const auto& row : tx.exec_params(
           "SELECT e ->> 'name', x.n, x.example::text"
           " FROM json_array_elements($1::json) AS e, json_array_elements(e -> 'examples') WITH ORDINALITY AS x (example, n)",
           text.str())) {
    const std::string event = row[0].c_str();
    webhooks.push_back({event + '/' + row[1].c_str(), event, row[2].c_str()});
  }
  return webhooks;
}

std::string bytea_literal(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\\x";
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

void make_tables(pqxx::connection& connection, const std::vector<Webhook>& webhooks) {
  pqxx::work tx(connection);
  tx.exec("CREATE TABLE baton_demo.webhook (name text PRIMARY KEY, body jsonb NOT NULL, body_digest text NOT NULL, bytes_digest text NOT NULL)");
  tx.exec("CREATE TABLE baton_demo.received (name text NOT NULL, round int NOT NULL, via text NOT NULL, is_equal boolean NOT NULL,"
          " is_same_digest boolean NOT NULL)");
  for (const auto& webhook : webhooks) {
    tx.exec_params("INSERT INTO baton_demo.webhook SELECT $1, $2::text::jsonb, encode(sha256(convert_to($2::text::jsonb::text, 'UTF8')), 'hex'),"
                   " encode(sha256($3::bytea), 'hex')", webhook.name, webhook.text, bytea_literal(webhook.text));
  }
  tx.exec_params("SELECT baton.drop_queue($1, if_exists => true, discard => true)", kWebhooks);
  tx.exec_params("SELECT baton.create_queue($1)", kWebhooks);
  tx.commit();
}

std::string message_id(const Webhook& webhook, int round) { return webhook.name + "#" + std::to_string(round); }

// One round, by one of the four ways in.
void enqueue_round(pqxx::connection& connection, const std::vector<Webhook>& webhooks, int round) {
  const int way = round % 4;
  if (way == 0) {
    pqxx::work tx(connection);
    for (const auto& webhook : webhooks) {
      tx.exec_params("SELECT id FROM baton.enqueue($1, $2, message_id => $3, routing_key => $4, message_class => $5)", kWebhooks, webhook.text,
                     message_id(webhook, round), webhook.name, webhook.event);
    }
    tx.commit();
  } else if (way == 1) {
    constexpr std::size_t kBatch = 25;
    for (std::size_t from = 0; from < webhooks.size(); from += kBatch) {
      std::vector<std::string> payloads, ids, keys, classes;
      for (std::size_t i = from; i < std::min(webhooks.size(), from + kBatch); i++) {
        payloads.push_back(webhooks[i].text);
        ids.push_back(message_id(webhooks[i], round));
        keys.push_back(webhooks[i].name);
        classes.push_back(webhooks[i].event);
      }
      pqxx::work tx(connection);
      tx.exec_params("SELECT count(*) FROM baton.enqueue_batch($1, $2, message_ids => $3, routing_keys => $4, message_classes => $5)", kWebhooks,
                     array_literal(payloads), array_literal(ids), array_literal(keys), array_literal(classes));
      tx.commit();
    }
  } else if (way == 2) {
    for (const auto& webhook : webhooks) {
      pqxx::work tx(connection);
      tx.exec_params("SELECT id FROM baton.enqueue_bytes($1, $2, message_id => $3, routing_key => $4, message_class => $5)", kWebhooks,
                     bytea_literal(webhook.text), message_id(webhook, round), webhook.name, webhook.event);
      tx.commit();
    }
  } else {
    pqxx::work tx(connection);
    for (const auto& webhook : webhooks) {
      tx.exec_params("INSERT INTO baton_queue.webhooks (payload, message_id, routing_key, message_class) VALUES ($1, $2, $3, $4)", webhook.text,
                     message_id(webhook, round), webhook.name, webhook.event);
    }
    tx.commit();
  }
}

// What a worker received goes back to the server as it is, and is held against what was sent.
template <class Row>
void compare(pqxx::transaction_base& tx, const Row& delivery, const char* via) {
  const std::string id = delivery["message_id"].c_str();
  const int round = std::stoi(id.substr(id.rfind('#') + 1));
  const char* name = delivery["routing_key"].c_str();
  const bool is_bytes = delivery["payload"].is_null();
  tx.exec_params(is_bytes ? "INSERT INTO baton_demo.received SELECT name, $2, $4, $5 = split_part(name, '/', 1),"
                            " encode(sha256($3::bytea), 'hex') = bytes_digest FROM baton_demo.webhook WHERE name = $1"
                          : "INSERT INTO baton_demo.received SELECT name, $2, $4, $3::text::jsonb = body AND $5 = split_part(name, '/', 1),"
                            " encode(sha256(convert_to($3, 'UTF8')), 'hex') = body_digest FROM baton_demo.webhook WHERE name = $1",
                 name, round, delivery[is_bytes ? "payload_bytes" : "payload"].c_str(), via, delivery["message_class"].c_str());
}

constexpr const char* kColumns = "message_id, routing_key, message_class, payload, payload_bytes";

// Three kinds of workers, until everything has been received.
void work(int kind, std::int64_t expected, std::atomic<std::int64_t>& received, const std::atomic<bool>& stop) {
  pqxx::connection connection("application_name=webhooks-" + std::to_string(kind));
  const std::string name = "webhooks-" + std::to_string(kind);
  pqxx::result held;
  while (!stop && received < expected) {
    std::size_t count = 0;
    if (kind == 0) {
      pqxx::work tx(connection);
      const auto taken = tx.exec_params(std::string("SELECT ") + kColumns + " FROM baton.take($1, 10)", kWebhooks);
      for (const auto& message : taken) compare(tx, message, "take");
      count = static_cast<std::size_t>(taken.size());
      tx.commit();
      received += static_cast<std::int64_t>(count);
    } else if (kind == 1) {
      pqxx::result claimed;
      {
        pqxx::nontransaction tx(connection);
        claimed = tx.exec_params(std::string("SELECT token, ") + kColumns + " FROM baton.claim($1, $2, 10, max_bytes => 200000)", kWebhooks, name);
      }
      count = static_cast<std::size_t>(claimed.size());
      if (count > 0) {
        std::vector<std::string> tokens;
        pqxx::work tx(connection);
        for (const auto& delivery : claimed) {
          compare(tx, delivery, "claim");
          tokens.emplace_back(delivery["token"].c_str());
        }
        tx.exec_params("SELECT baton.ack_batch($1)", array_literal(tokens));
        tx.commit();
        received += static_cast<std::int64_t>(count);
      }
    } else {
      // compares what it has, acknowledges it in the same transaction, and has the next by the same call and flush
      pqxx::work tx(connection);
      std::vector<std::string> tokens;
      for (const auto& delivery : held) {
        if (!delivery["ord"].is_null()) continue;  // an outcome of the call before
        compare(tx, delivery, "settle_and_claim");
        tokens.emplace_back(delivery["token"].c_str());
      }
      held = tx.exec_params(std::string("SELECT ord, outcome, token, ") + kColumns + " FROM baton.settle_and_claim($1, $2, worker => $3, max_items => 10)",
                            kWebhooks, array_literal(tokens), name);
      for (const auto& row : held) {
        if (row["ord"].is_null()) continue;
        const std::string outcome = row["outcome"].c_str();
        // settle_and_claim reports and does not raise: what was written for a message it refused must not stay
        if (outcome != "acked") throw std::runtime_error("settle_and_claim: " + outcome);
      }
      tx.commit();
      received += static_cast<std::int64_t>(tokens.size());
      count = static_cast<std::size_t>(held.size());
    }
    if (count == 0) {
      pqxx::nontransaction tx(connection);
      tx.exec_params("CALL baton.wait($1, '200 ms')", kWebhooks);
    }
  }
}

}  // namespace

Books run_webhooks(const std::string& directory, int rounds) {
  pqxx::connection connection("application_name=demo");
  const auto webhooks = read_webhooks(connection, directory);
  if (webhooks.empty()) throw std::runtime_error("no webhook payloads in " + directory);
  std::size_t bytes = 0;
  for (const auto& webhook : webhooks) bytes += webhook.text.size();
  const auto expected = static_cast<std::int64_t>(webhooks.size()) * rounds;
  char size[40];
  std::snprintf(size, sizeof size, "%.1f", static_cast<double>(bytes) * rounds / 1e6);
  say("");
  say("(b) " + with_commas(static_cast<std::int64_t>(webhooks.size())) + " webhook payloads of GitHub, " + std::to_string(rounds) + " times over: " +
      with_commas(expected) + " messages, " + size + " MB");

  make_tables(connection, webhooks);
  Books books;
  std::atomic<std::int64_t> received{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::string> errors(5);
  const auto guarded = [&](std::size_t i, auto body) {
    threads.emplace_back([&errors, &stop, i, body] {
      try {
        body();
      } catch (const std::exception& e) {
        errors[i] = first_line(e.what());
        stop = true;
      }
    });
  };
  for (int producer = 0; producer < 2; producer++) {
    guarded(static_cast<std::size_t>(producer), [&, producer] {
      pqxx::connection own("application_name=webhook-producer");
      for (int round = producer; round < rounds && !stop; round += 2) enqueue_round(own, webhooks, round);
    });
  }
  for (int kind = 0; kind < 3; kind++) {
    guarded(static_cast<std::size_t>(2 + kind), [&, kind] { work(kind, expected, received, stop); });
  }
  const auto from = Clock::now();
  const auto deadline = from + std::chrono::seconds(90);
  while (!stop && received < expected && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!stop && received < expected) books.complaints.push_back("only " + with_commas(received) + " webhooks had arrived after 90 s");
  stop = true;
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (!error.empty()) books.complaints.push_back("webhooks: " + error);
  }
  const double elapsed_s = std::chrono::duration<double>(Clock::now() - from).count();

  std::int64_t unequal = 0, other_digest = 0;
  {
    pqxx::work tx(connection);
    const std::string all = "(SELECT w.name, n AS round, (SELECT count(*) FROM baton_demo.received r WHERE (r.name, r.round) = (w.name, n)) AS times"
                            " FROM baton_demo.webhook w, generate_series(0, " + std::to_string(rounds - 1) + ") n) AS expected";
    tx.exec("CREATE INDEX ON baton_demo.received (name, round)");
    books.enqueued = expected;
    books.settled_once = count_of(tx, "SELECT count(*) FROM " + all + " WHERE times = 1");
    books.lost = count_of(tx, "SELECT count(*) FROM " + all + " WHERE times = 0");
    books.doubled = count_of(tx, "SELECT count(*) FROM " + all + " WHERE times > 1");
    unequal = count_of(tx, "SELECT count(*) FROM baton_demo.received WHERE NOT is_equal");
    other_digest = count_of(tx, "SELECT count(*) FROM baton_demo.received WHERE NOT is_same_digest");
    std::string ways;
    for (const auto& row : tx.exec("SELECT via, count(*) FROM baton_demo.received GROUP BY via ORDER BY via")) {
      ways += (ways.empty() ? "" : ", ") + with_commas(row[1].as<std::int64_t>()) + " by " + row[0].c_str();
    }
    tx.commit();
    say("  in by enqueue, enqueue_batch, enqueue_bytes and INSERT into baton_queue.webhooks; out: " + ways);
  }
  char line[160];
  std::snprintf(line, sizeof line, "  %s received in %.1f s; %s differ as jsonb, %s by digest", with_commas(received).c_str(), elapsed_s,
                with_commas(unequal).c_str(), with_commas(other_digest).c_str());
  say(line);
  if (unequal != 0) books.complaints.push_back(with_commas(unequal) + " webhooks came out different");
  if (other_digest != 0) books.complaints.push_back(with_commas(other_digest) + " webhooks came out with another digest");
  check_queue(connection, kWebhooks, books);
  return books;
}

}  // namespace demo
