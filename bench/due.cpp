// driver due: workers that sleep in baton.wait, or LISTEN, and take what falls due.
#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "driver.hpp"

namespace {

// Sleeps until the server says something on this connection, at most so long. True if there was a notification.
bool heard(Connection& c, int ms) {
  if (c.notified()) return true;
  pollfd p{c.socket(), POLLIN, 0};
  if (poll(&p, 1, ms) > 0) c.consume();
  return c.notified();
}

}  // namespace

// Messages carry their due time, in seconds since 1970. Each worker takes what is there whenever wait, or a notification,
// says so, and never otherwise.
int due(const char* queue, bool listens, int workers, double seconds) {
  constexpr const char* kTake = "SELECT extract(epoch FROM clock_timestamp()) - payload::text::float8 FROM baton.take($1, 20)";
  std::vector<Latencies> late(static_cast<std::size_t>(workers));
  std::atomic<std::int64_t> wakings{0}, early{0};
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; i++) {
    threads.emplace_back([&, i] {
      Connection c;
      c.exec("SET pg_baton.wait_recheck = '1h'");
      if (listens) c.exec(std::string("LISTEN ") + c.run("SELECT baton.channel($1)", {queue}).at(0, 0));
      for (bool first = true; Clock::now() < end; first = false) {
        if (!listens)
          c.run("CALL baton.wait($1, '1 s')", {queue});
        else if (!first && !heard(c, 1000))
          continue;
        wakings++;
        for (;;) {
          const auto taken = c.run(kTake, {queue});
          if (taken.rows() == 0) break;
          for (int row = 0; row < taken.rows(); row++) {
            const double ms = 1000 * std::strtod(taken.at(row, 0), nullptr);
            if (ms < 0) early++;
            late[static_cast<std::size_t>(i)].add(ms);
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Latencies all;
  for (const auto& l : late) all.add(l);
  std::printf("{\"late\":%s,\"early\":%lld,\"wakings\":%lld}\n", all.json().c_str(), static_cast<long long>(early),
              static_cast<long long>(wakings));
  return 0;
}
