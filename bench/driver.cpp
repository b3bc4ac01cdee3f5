// The load generator of the benchmarks: one thread per connection, libpq, prepared statements, nothing clever.
//
// It exists because pgbench counts transactions, and what is compared here is messages: a claim may come back short or
// empty, a backlog may run dry before the time is up, and a token has to be carried from the claim, which is committed
// and flushed, to the ack, which is another transaction. Both queues go through the same loops; all that differs is
// the table of statements below. The result is one line of JSON on standard output.
//
//   driver load   --system baton|textbook --loop enqueue|claim_ack|settle_and_claim --connections N --batch N --seconds S
//   driver verbs  --queue small --queue deep --iterations N       latency of each verb, the queues taking turns
//   driver phases --system ... --batch N --iterations N           WAL bytes per message and verb, one connection
//   driver wake   --rate N --producers N --workers N --seconds S  commit of an enqueue to delivery at a waiting worker
//   driver due    --loop wait|listen --queue Q --workers N --seconds S   how late after their due times messages are delivered
//   driver flush  --seconds S                                     what one flushed commit costs here
//
// The server is the one that PGHOST, PGPORT, ... name.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace {

constexpr std::size_t kPayloadBytes = 200;
constexpr const char* kLeaseS = "300";

// --- the two queues --------------------------------------------------------------------------------------------

// $1 is the queue wherever one is named. The textbook queue is one table, and ignores it.
struct Statements {
  const char* enqueue;
  const char* enqueue_batch;
  const char* claim;      // $2 how many; returns token, payload
  const char* ack;        // $1 token
  const char* ack_batch;  // $1 array of tokens
};

constexpr Statements kBaton = {
    "SELECT id FROM baton.enqueue($1, $2)",
    "SELECT count(id) FROM baton.enqueue_batch($1, $2)",
    "SELECT token, payload FROM baton.claim($1, 'bench', $2, '300 s')",
    "SELECT baton.ack($1)",
    "SELECT baton.ack_batch($1)",
};
constexpr Statements kTextbook = {
    "SELECT textbook.send($2) WHERE $1::text IS NOT NULL",
    "SELECT count(*) FROM textbook.send_batch($2) WHERE $1::text IS NOT NULL",
    "SELECT id, payload FROM textbook.read($2, 300) WHERE $1::text IS NOT NULL",
    "SELECT textbook.delete($1)",
    "SELECT count(*) FROM textbook.delete_batch($1)",
};
// Ends what is held and claims what is next, in one call: $2 tokens, $3 how many; returns token, payload, ord. An outcome
// has its ord set; the textbook queue gives none.
constexpr const char* kSettleAndClaim =
    "SELECT token, payload, ord FROM baton.settle_and_claim($1, $2, '{ack}', 'bench', $3, '300 s')";
constexpr const char* kDeleteAndRead =
    "SELECT r.id, r.payload, NULL AS ord FROM (SELECT count(*) FROM textbook.delete_batch($2)) AS done"
    " LEFT JOIN LATERAL textbook.read($3, 300) AS r ON true WHERE $1::text IS NOT NULL";

// --- options, figures ------------------------------------------------------------------------------------------

struct Options {
  std::string mode, system = "baton", loop = "claim_ack";
  std::vector<std::string> queues;
  int connections = 4, batch = 1, iterations = 1000, rate = 1000, producers = 8, workers = 8;
  double seconds = 3;
  int intervals = 1;

  const Statements& statements() const { return system == "textbook" ? kTextbook : kBaton; }
  const char* queue() const { return queues.empty() ? "bench" : queues.front().c_str(); }
};

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// Times what happens between its making and its end.
template <class F>
auto timed(Latencies& into, F&& f) {
  const auto from = Clock::now();
  auto result = f();
  into.add(ms_between(from, Clock::now()));
  return result;
}

// kPayloadBytes bytes of JSON with few keys: reading JSON costs the server the same for either queue, about 2 us for this
// and 3 us with five keys, and is not what is compared.
std::string payload(std::uint64_t n) {
  std::string text = "{\"order\": " + std::to_string(n) + ", \"note\": \"";
  const std::size_t tail = 2;
  while (text.size() + tail < kPayloadBytes) text += static_cast<char>('a' + text.size() * 7 % 26);
  return text + "\"}";
}

std::string array_literal(const std::vector<std::string>& elements) {
  std::string text = "{";
  for (const auto& element : elements) {
    if (text.size() > 1) text += ',';
    text += '"';
    for (const char c : element) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    text += '"';
  }
  return text + '}';
}

// Built once and sent again and again: the making of arrays in the client is not what is measured.
std::vector<std::string> payload_stock(int batch, unsigned seed) {
  std::vector<std::string> stock;
  for (unsigned i = 0; i < 16; i++) {
    if (batch == 1) {
      stock.push_back(payload(seed * 1000 + i));
      continue;
    }
    std::vector<std::string> elements;
    for (int k = 0; k < batch; k++) elements.push_back(payload((seed * 16 + i) * 1000 + static_cast<unsigned>(k)));
    stock.push_back(array_literal(elements));
  }
  return stock;
}

std::vector<std::string> tokens_of(const Result& claimed) {
  std::vector<std::string> tokens;
  for (int row = 0; row < claimed.rows(); row++) tokens.emplace_back(claimed.at(row, 0));
  return tokens;
}

std::int64_t wal_position(Connection& c) {
  return std::stoll(c.exec("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").at(0, 0));
}

// --- load ------------------------------------------------------------------------------------------------------

// Starting line: threads connect and prepare first.
struct Race {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, failed{false};
  Clock::time_point start, end;  // written before go
};

struct Tally {
  std::vector<std::int64_t> per_interval;
  std::int64_t messages = 0, calls = 0, empty = 0, server_cpu_ns = 0;
  Clock::time_point last;  // when the last message was done
  bool is_drained = false;
  std::map<std::string, Latencies> latency;
  std::string error;
};

class Runner {
 public:
  Runner(const Options& options, Race& race, Tally& tally, unsigned seed)
      : o_(options), race_(race), tally_(tally), stock_(payload_stock(options.batch, seed)),
        batch_(std::to_string(options.batch)) {}

  void run() {
    tally_.per_interval.assign(static_cast<std::size_t>(o_.intervals), 0);
    connection_.emplace();
    race_.ready++;
    while (!race_.go) std::this_thread::yield();
    tally_.last = race_.start;
    if (race_.failed) return;
    const auto cpu_from = connection_->server_cpu_ns();
    if (o_.loop == "enqueue") enqueue();
    else if (o_.loop == "claim_ack") claim_ack();
    else if (o_.loop == "settle_and_claim") settle_and_claim();
    else throw std::runtime_error("no such loop: " + o_.loop);
    tally_.server_cpu_ns = connection_->server_cpu_ns() - cpu_from;
  }

 private:
  bool is_over() const { return Clock::now() >= race_.end || race_.failed; }

  void count(int messages) {
    const auto now = Clock::now();
    tally_.calls++;
    tally_.messages += messages;
    tally_.last = now;
    const double part = seconds_between(race_.start, now) / o_.seconds * o_.intervals;
    if (part < o_.intervals) tally_.per_interval[static_cast<std::size_t>(part)] += messages;
  }

  // A queue that stays empty for a while has run dry; others may still be holding what is left.
  bool is_dry() {
    tally_.empty++;
    if (++empty_in_a_row_ < 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return false;
    }
    tally_.is_drained = true;
    return true;
  }

  void enqueue() {
    const char* sql = o_.batch == 1 ? o_.statements().enqueue : o_.statements().enqueue_batch;
    auto& latency = tally_.latency["enqueue"];
    for (std::size_t i = 0; !is_over(); i++) {
      timed(latency, [&] { return connection_->run(sql, {o_.queue(), stock_[i % stock_.size()].c_str()}); });
      count(o_.batch);
    }
  }

  void claim_ack() {
    const Statements& s = o_.statements();
    auto& claim_latency = tally_.latency["claim"];
    auto& ack_latency = tally_.latency["ack"];
    while (!is_over()) {
      const auto claimed = timed(claim_latency, [&] { return connection_->run(s.claim, {o_.queue(), batch_.c_str()}); });
      if (claimed.rows() == 0) {
        if (is_dry()) return;
        continue;
      }
      empty_in_a_row_ = 0;
      if (o_.batch == 1) {
        timed(ack_latency, [&] { return connection_->run(s.ack, {claimed.at(0, 0)}); });
      } else {
        const auto tokens = array_literal(tokens_of(claimed));
        timed(ack_latency, [&] { return connection_->run(s.ack_batch, {tokens.c_str()}); });
      }
      count(claimed.rows());
    }
  }

  void settle_and_claim() {
    const bool is_baton = o_.system == "baton";
    const char* sql = is_baton ? kSettleAndClaim : kDeleteAndRead;
    auto& latency = tally_.latency["settle_and_claim"];
    std::vector<std::string> held;
    while (!is_over()) {
      const auto tokens = array_literal(held);
      const auto answer = timed(
          latency, [&] { return connection_->run(sql, {o_.queue(), tokens.c_str(), batch_.c_str()}); });
      std::vector<std::string> next;
      int settled = is_baton ? 0 : static_cast<int>(held.size());
      for (int row = 0; row < answer.rows(); row++) {
        if (!answer.is_null(row, 2)) settled++;
        else if (!answer.is_null(row, 0)) next.emplace_back(answer.at(row, 0));
      }
      if (settled != static_cast<int>(held.size())) throw std::runtime_error("settle_and_claim settled too few");
      if (settled > 0) count(settled);
      held = std::move(next);
      if (held.empty() && settled == 0 && is_dry()) return;
      if (!held.empty()) empty_in_a_row_ = 0;
    }
    if (!held.empty()) connection_->run(o_.statements().ack_batch, {array_literal(held).c_str()});
  }

  const Options& o_;
  Race& race_;
  Tally& tally_;
  std::vector<std::string> stock_;
  std::string batch_;
  std::optional<Connection> connection_;
  int empty_in_a_row_ = 0;
};

int load(const Options& options) {
  Race race;
  std::vector<Tally> tallies(static_cast<std::size_t>(options.connections));
  std::vector<std::thread> threads;
  Connection observer;
  for (std::size_t i = 0; i < tallies.size(); i++) {
    threads.emplace_back([&, i] {
      try {
        Runner(options, race, tallies[i], static_cast<unsigned>(i + 1)).run();
      } catch (const std::exception& e) {
        tallies[i].error = e.what();
        race.failed = true;
      }
    });
  }
  while (race.ready < options.connections && !race.failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto wal_from = wal_position(observer);
  race.start = Clock::now();
  race.end = race.start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  race.go = true;
  for (auto& thread : threads) thread.join();
  const auto wal_to = wal_position(observer);

  Tally sum;
  sum.per_interval.assign(static_cast<std::size_t>(options.intervals), 0);
  sum.last = race.start;
  for (auto& t : tallies) {
    if (!t.error.empty()) {
      std::fprintf(stderr, "driver: %s\n", t.error.c_str());
      return 1;
    }
    sum.messages += t.messages;
    sum.calls += t.calls;
    sum.empty += t.empty;
    sum.server_cpu_ns += t.server_cpu_ns;
    sum.is_drained = sum.is_drained || t.is_drained;
    sum.last = std::max(sum.last, t.last);
    for (std::size_t k = 0; k < t.per_interval.size(); k++) sum.per_interval[k] += t.per_interval[k];
    for (const auto& [verb, latency] : t.latency) sum.latency[verb].add(latency);
  }
  const double elapsed_s = seconds_between(race.start, sum.last);
  std::string json = "{\"messages\":" + std::to_string(sum.messages) + ",\"seconds\":" + number(elapsed_s) +
                     ",\"messages_per_s\":" + number(elapsed_s > 0 ? static_cast<double>(sum.messages) / elapsed_s : 0) +
                     ",\"calls\":" + std::to_string(sum.calls) + ",\"empty_claims\":" + std::to_string(sum.empty) +
                     ",\"server_cpu_us_per_message\":" +
                     number(sum.messages > 0 ? static_cast<double>(sum.server_cpu_ns) / 1000 / static_cast<double>(sum.messages) : 0) + ",\"drained\":" + (sum.is_drained ? "true" : "false") + ",\"wal_bytes_per_message\":" +
                     number(sum.messages > 0 ? static_cast<double>(wal_to - wal_from) / static_cast<double>(sum.messages) : 0) +
                     ",\"intervals_per_s\":[";
  const double interval_s = options.seconds / options.intervals;
  for (std::size_t k = 0; k < sum.per_interval.size(); k++) {
    json += (k > 0 ? "," : "") + number(static_cast<double>(sum.per_interval[k]) / interval_s);
  }
  json += "],\"latency\":{";
  bool is_first = true;
  for (auto& [verb, latency] : sum.latency) {
    json += (is_first ? "\"" : ",\"") + verb + "\":" + latency.json();
    is_first = false;
  }
  std::printf("%s}}\n", json.c_str());
  return 0;
}

// --- verbs -----------------------------------------------------------------------------------------------------

// One connection, the queues in turn, so that noise meets them alike. Each turn leaves a queue as deep as it was.
int verbs(const Options& options) {
  Connection c;
  // the queues are of the class async, so that this is not overruled
  c.exec("SET synchronous_commit = off");
  std::vector<std::map<std::string, Latencies>> latency(options.queues.size());
  const auto stock = payload_stock(1, 1);
  const int warm_up = options.iterations / 10;
  for (int i = -warm_up; i < options.iterations; i++) {
    for (std::size_t k = 0; k < options.queues.size(); k++) {
      const char* queue = options.queues[k].c_str();
      const char* body = stock[static_cast<std::size_t>(i + warm_up) % stock.size()].c_str();
      std::map<std::string, Latencies> unused;
      auto& l = i < 0 ? unused : latency[k];
      const auto claim = [&] {
        auto claimed = timed(l["claim"], [&] { return c.run(kBaton.claim, {queue, "1"}); });
        if (claimed.rows() != 1) throw std::runtime_error(std::string("nothing to claim in ") + queue);
        return std::string(claimed.at(0, 0));
      };
      timed(l["enqueue"], [&] { return c.run(kBaton.enqueue, {queue, body}); });
      auto token = claim();
      timed(l["start"], [&] { return c.run("SELECT baton.start($1)", {token.c_str()}); });
      timed(l["extend"], [&] { return c.run("SELECT baton.extend($1, '300 s')", {token.c_str()}); });
      timed(l["ack"], [&] { return c.run(kBaton.ack, {token.c_str()}); });
      timed(l["enqueue"], [&] { return c.run(kBaton.enqueue, {queue, body}); });
      token = claim();
      timed(l["release"], [&] {
        return c.run("SELECT state FROM baton.release($1, '0', failed => false)", {token.c_str()});
      });
      timed(l["take"], [&] { return c.run("SELECT id, payload FROM baton.take($1)", {queue}); });
    }
  }
  std::string json = "{";
  for (std::size_t k = 0; k < options.queues.size(); k++) {
    json += (k > 0 ? ",\"" : "\"") + options.queues[k] + "\":{";
    bool is_first = true;
    for (auto& [verb, l] : latency[k]) {
      json += (is_first ? "\"" : ",\"") + verb + "\":" + l.json();
      is_first = false;
    }
    json += "}";
  }
  std::printf("%s}\n", json.c_str());
  return 0;
}

// --- phases ----------------------------------------------------------------------------------------------------

// First all enqueues, then all claims, then all extends, then all acks, so that the WAL between is one verb's alone.
int phases(const Options& options) {
  Connection c;
  // the bytes are the same, and the flushes would only take time
  c.exec("SET synchronous_commit = off");
  const Statements& s = options.statements();
  const bool is_baton = options.system == "baton";
  const auto stock = payload_stock(options.batch, 1);
  const auto batch = std::to_string(options.batch);
  std::vector<std::vector<std::string>> held;
  std::string json = "{";
  const auto phase = [&](const char* verb, auto&& step) {
    const auto from = wal_position(c);
    for (int i = 0; i < options.iterations; i++) step(static_cast<std::size_t>(i));
    const double messages = static_cast<double>(options.iterations) * options.batch;
    json += (json.size() > 1 ? ",\"" : "\"") + std::string(verb) +
            "\":" + number(static_cast<double>(wal_position(c) - from) / messages);
  };
  phase("enqueue", [&](std::size_t i) {
    c.run(options.batch == 1 ? s.enqueue : s.enqueue_batch, {options.queue(), stock[i % stock.size()].c_str()});
  });
  phase("claim", [&](std::size_t) {
    held.push_back(tokens_of(c.run(s.claim, {options.queue(), batch.c_str()})));
    if (held.back().size() != static_cast<std::size_t>(options.batch)) throw std::runtime_error("a claim came up short");
  });
  if (is_baton) {
    phase("extend", [&](std::size_t i) {
      c.run("SELECT count(*) FROM baton.extend_batch($1, '300 s')", {array_literal(held[i]).c_str()});
    });
  }
  phase("ack", [&](std::size_t i) {
    if (options.batch == 1) c.run(s.ack, {held[i].front().c_str()});
    else c.run(s.ack_batch, {array_literal(held[i]).c_str()});
  });
  std::printf("%s}\n", json.c_str());
  return 0;
}

// --- wake ------------------------------------------------------------------------------------------------------

// Times of one message, from its producer and its worker. A message is its number in the payload.
struct Flight {
  std::atomic<std::int64_t> commit_sent_ns{0}, commit_answered_ns{0}, delivered_ns{0};
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

int wake(const Options& options) {
  const auto total = static_cast<std::size_t>(options.rate * options.seconds);
  std::vector<Flight> flights(total);
  std::atomic<std::size_t> delivered{0};
  std::atomic<bool> stop{false}, failed{false};
  std::atomic<std::int64_t> waits{0}, claims{0}, empty_claims{0};
  const auto start = Clock::now() + std::chrono::milliseconds(500);  // workers wait by then
  const auto deadline = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds + 20));

  const auto guarded = [&](auto&& body) {
    return [&, body] {
      try {
        body();
      } catch (const std::exception& e) {
        if (!failed.exchange(true)) std::fprintf(stderr, "driver: %s\n", e.what());
        stop = true;
      }
    };
  };
  const auto work = [&] {
    Connection c;
    while (!stop) {
      c.run("CALL baton.wait($1, '1 s')", {options.queue()});
      waits++;
      for (;;) {
        const auto claimed = c.run(kBaton.claim, {options.queue(), "10"});
        const auto at_ns = now_ns();
        claims++;
        if (claimed.rows() == 0) {
          empty_claims++;
          break;
        }
        for (int row = 0; row < claimed.rows(); row++) {
          const std::string body = claimed.at(row, 1);
          const auto n = std::stoull(body.substr(body.find(':') + 1));
          flights.at(n).delivered_ns = at_ns;
        }
        c.run(kBaton.ack_batch, {array_literal(tokens_of(claimed)).c_str()});
        delivered += static_cast<std::size_t>(claimed.rows());
        // settle first, then look again: a worker with nothing in hand waits
      }
    }
  };
  const auto produce = [&](int producer) {
    Connection c;
    for (auto n = static_cast<std::size_t>(producer); n < total && !stop; n += static_cast<std::size_t>(options.producers)) {
      const auto body = "{\"n\": " + std::to_string(n) + "}";
      std::this_thread::sleep_until(start + std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(n) / options.rate)));
      c.exec("BEGIN");
      c.run(kBaton.enqueue, {options.queue(), body.c_str()});
      flights[n].commit_sent_ns = now_ns();
      c.exec("COMMIT");
      flights[n].commit_answered_ns = now_ns();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < options.workers; i++) threads.emplace_back(guarded(work));
  for (int i = 0; i < options.producers; i++) threads.emplace_back(guarded([&produce, i] { produce(i); }));
  while (!stop && delivered < total && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto elapsed_s = seconds_between(start, Clock::now());
  stop = true;
  for (auto& thread : threads) thread.join();
  if (failed) return 1;

  Latencies from_sent, from_answered, commit;
  std::size_t lost = 0;
  for (const auto& f : flights) {
    if (f.delivered_ns == 0) {
      lost++;
      continue;
    }
    from_sent.add(static_cast<double>(f.delivered_ns - f.commit_sent_ns) / 1e6);
    // the worker may have it before the producer has its answer
    from_answered.add(std::max(0.0, static_cast<double>(f.delivered_ns - f.commit_answered_ns) / 1e6));
    commit.add(static_cast<double>(f.commit_answered_ns - f.commit_sent_ns) / 1e6);
  }
  std::printf("{\"messages\":%zu,\"undelivered\":%zu,\"per_s\":%s,\"waits\":%lld,\"claims\":%lld,\"empty_claims\":%lld,"
              "\"from_commit_answered\":%s,\"from_commit_sent\":%s,\"commit\":%s}\n",
              total, lost, number(static_cast<double>(total - lost) / elapsed_s).c_str(),
              static_cast<long long>(waits), static_cast<long long>(claims), static_cast<long long>(empty_claims),
              from_answered.json().c_str(), from_sent.json().c_str(), commit.json().c_str());
  return 0;
}

// --- flush -----------------------------------------------------------------------------------------------------

// A transaction that writes a few bytes of WAL and nothing else, from one connection.
int flush(const Options& options) {
  Connection c;
  Latencies latency;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  while (Clock::now() < end) {
    timed(latency, [&] { return c.run("SELECT pg_logical_emit_message(true, 'baton_bench', 'x')"); });
  }
  std::printf("%s\n", latency.json().c_str());
  return 0;
}

Options parse(int argc, char** argv) {
  if (argc < 2) throw std::runtime_error("which mode? See the top of driver.cpp");
  Options o;
  o.mode = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--system") o.system = value;
    else if (name == "--loop") o.loop = value;
    else if (name == "--queue") o.queues.push_back(value);
    else if (name == "--connections") o.connections = std::stoi(value);
    else if (name == "--batch") o.batch = std::stoi(value);
    else if (name == "--iterations") o.iterations = std::stoi(value);
    else if (name == "--rate") o.rate = std::stoi(value);
    else if (name == "--producers") o.producers = std::stoi(value);
    else if (name == "--workers") o.workers = std::stoi(value);
    else if (name == "--seconds") o.seconds = std::stod(value);
    else if (name == "--intervals") o.intervals = std::stoi(value);
    else throw std::runtime_error("unknown option " + name);
  }
  if (argc % 2 != 0) throw std::runtime_error(std::string("no value for ") + argv[argc - 1]);
  if (o.system != "baton" && o.system != "textbook") throw std::runtime_error("no such system: " + o.system);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.mode == "load") return load(options);
    if (options.mode == "verbs") return verbs(options);
    if (options.mode == "phases") return phases(options);
    if (options.mode == "wake") return wake(options);
    if (options.mode == "due") return due(options.queue(), options.loop == "listen", options.workers, options.seconds);
    if (options.mode == "flush") return flush(options);
    throw std::runtime_error("no such mode: " + options.mode);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "driver: %s\n", e.what());
    return 1;
  }
}
