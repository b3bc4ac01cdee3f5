// baton_demo run [--seconds N] [--webhooks DIRECTORY | --skipped WHY] [--rounds N]
// baton_demo worker KIND NAME          what `run` starts, and kills
//
// The last line is `demo: ok: N enqueued, N settled once, 0 lost, 0 doubled`, or `demo: FAILED: ...`, and the exit
// status says the same. The server is the one that PGHOST, PGPORT, ... name; schema baton_demo and two queues are made
// anew and left for you to look at.

#include "demo.hpp"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

namespace demo {

void say(const std::string& line) { std::cout << line << std::endl; }

std::string with_commas(std::int64_t n) {
  std::string text = std::to_string(n);
  for (auto at = static_cast<int>(text.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

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

std::int64_t count_of(pqxx::transaction_base& tx, const std::string& sql) { return tx.exec(sql)[0][0].as<std::int64_t>(); }

std::int64_t unsettled(pqxx::connection& connection, const std::string& queue) {
  pqxx::nontransaction tx(connection);
  return count_of(tx, "SELECT count(*) FROM baton_queue." + connection.quote_name(queue));
}

void check_queue(pqxx::connection& connection, const std::string& queue, Books& books) {
  pqxx::nontransaction tx(connection);
  for (const auto& row : tx.exec_params("SELECT c::text FROM baton.check($1) AS c", queue)) {
    books.complaints.push_back("baton.check(" + queue + "): " + row[0].c_str());
  }
  const auto left = count_of(tx, "SELECT count(*) FROM baton_queue." + connection.quote_name(queue));
  if (left != 0) books.complaints.push_back(with_commas(left) + " messages are left in " + queue);
}

}  // namespace demo

namespace {

int run(int argc, char** argv) {
  double seconds = 20;
  int rounds = 24;
  std::string directory, skipped;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::stod(argv[i + 1]);
    else if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::stoi(argv[i + 1]);
    else if (std::strcmp(argv[i], "--webhooks") == 0) directory = argv[i + 1];
    else if (std::strcmp(argv[i], "--skipped") == 0) skipped = argv[i + 1];
    else throw std::runtime_error(std::string("unknown option ") + argv[i]);
  }
  auto all = demo::run_bank(seconds);
  if (!skipped.empty()) demo::say("\n(b) is skipped: " + skipped);
  if (!directory.empty()) {
    const auto more = demo::run_webhooks(directory, rounds);
    all.enqueued += more.enqueued;
    all.settled_once += more.settled_once;
    all.lost += more.lost;
    all.doubled += more.doubled;
    all.complaints.insert(all.complaints.end(), more.complaints.begin(), more.complaints.end());
  }
  demo::say("");
  for (const auto& complaint : all.complaints) demo::say("  WRONG: " + complaint);
  const bool is_ok = all.complaints.empty() && all.enqueued > 0 && all.enqueued == all.settled_once && all.lost == 0 && all.doubled == 0;
  const std::string figures = std::to_string(all.enqueued) + " enqueued, " + std::to_string(all.settled_once) + " settled once, " +
                              std::to_string(all.lost) + " lost, " + std::to_string(all.doubled) + " doubled";
  demo::say((is_ok ? "demo: ok: " : "demo: FAILED: ") + figures +
            (is_ok || all.complaints.empty() ? "" : ", " + std::to_string(all.complaints.size()) + " complaints"));
  return is_ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "worker" && argc == 4) return demo::run_worker(argv[2], argv[3]);
    if (mode == "run" && argc % 2 == 0) {
      std::signal(SIGPIPE, SIG_IGN);
      return run(argc, argv);
    }
    std::cerr << "usage: baton_demo run [--seconds N] [--webhooks DIRECTORY] [--rounds N]\n";
    return 2;
  } catch (const std::exception& e) {
    if (mode == "worker") std::cerr << argv[3] << ": " << e.what() << std::endl;
    else demo::say("demo: FAILED: " + demo::first_line(e.what()));
    return 1;
  }
}
