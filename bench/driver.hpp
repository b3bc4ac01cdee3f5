// What the parts of the load generator share: a connection, and figures.
#pragma once

#include <libpq-fe.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

// --- connection ------------------------------------------------------------------------------------------------

class Result {
 public:
  explicit Result(PGresult* r) : r_(r, PQclear) {}
  int rows() const { return PQntuples(r_.get()); }
  bool is_null(int row, int column) const { return PQgetisnull(r_.get(), row, column) != 0; }
  const char* at(int row, int column) const { return PQgetvalue(r_.get(), row, column); }

 private:
  std::unique_ptr<PGresult, decltype(&PQclear)> r_;
};

class Connection {
 public:
  Connection() : c_(PQconnectdb("application_name=baton_bench"), PQfinish) {
    if (PQstatus(c_.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(c_.get()));
  }

  // What the server process behind this connection has spent on a CPU; 0 where that cannot be read.
  std::int64_t server_cpu_ns() const {
    std::ifstream in("/proc/" + std::to_string(PQbackendPID(c_.get())) + "/schedstat");
    std::int64_t ns = 0;
    in >> ns;
    return ns;
  }

  int socket() const { return PQsocket(c_.get()); }
  void consume() { PQconsumeInput(c_.get()); }
  // Is there a notification? All there are count as one.
  bool notified() {
    bool any = false;
    while (PGnotify* n = PQnotifies(c_.get())) {
      any = true;
      PQfreemem(n);
    }
    return any;
  }

  Result exec(const std::string& sql) { return checked(PQexec(c_.get(), sql.c_str()), sql); }

  // Prepares the statement at its first use; SQL text is its key.
  Result run(const char* sql, std::initializer_list<const char*> parameters = {}) {
    auto [it, is_new] = names_.try_emplace(sql, "s" + std::to_string(names_.size()));
    if (is_new) checked(PQprepare(c_.get(), it->second.c_str(), sql, 0, nullptr), sql);
    return checked(PQexecPrepared(c_.get(), it->second.c_str(), static_cast<int>(parameters.size()),
                                  parameters.begin(), nullptr, nullptr, 0),
                   sql);
  }

 private:
  Result checked(PGresult* r, const std::string& sql) {
    Result result(r);
    const ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
      throw std::runtime_error(std::string(PQresultErrorMessage(r)) + "  in: " + sql);
    }
    return result;
  }

  std::unique_ptr<PGconn, decltype(&PQfinish)> c_;
  std::map<std::string, std::string> names_;
};

class Latencies {
 public:
  void add(double ms) { ms_.push_back(ms); }
  void add(const Latencies& other) { ms_.insert(ms_.end(), other.ms_.begin(), other.ms_.end()); }
  std::string json() {
    std::sort(ms_.begin(), ms_.end());
    char text[160];
    std::snprintf(text, sizeof text, "{\"count\":%zu,\"p50_ms\":%.4f,\"p90_ms\":%.4f,\"p99_ms\":%.4f,\"max_ms\":%.4f}",
                  ms_.size(), quantile(0.5), quantile(0.9), quantile(0.99), quantile(1));
    return text;
  }

 private:
  double quantile(double q) const {
    if (ms_.empty()) return 0;
    return ms_[std::min(ms_.size() - 1, static_cast<std::size_t>(q * static_cast<double>(ms_.size())))];
  }
  std::vector<double> ms_;
};

inline double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }
inline double ms_between(Clock::time_point a, Clock::time_point b) { return 1000 * seconds_between(a, b); }

// How late after their due times messages are delivered (due.cpp).
int due(const char* queue, bool listens, int workers, double seconds);
