// Worker processes: started, listened to, killed and replaced. A worker says what it does in lines of one word and a
// number on its standard output; what it has not said before it is killed, it has not done or nobody was told.
#pragma once

#include "demo.hpp"

#include <map>
#include <memory>
#include <sys/types.h>

namespace demo {

class Foreman {
 public:
  ~Foreman();

  void start(const std::string& kind);
  // Reads what workers have said, waits for up to timeout_ms for something; kills the victims that are ready.
  void listen(int timeout_ms);
  // kill -9 for one worker of this kind, whatever it is doing; another takes its place.
  void kill_one(const std::string& kind);
  // Lets workers of this kind (all: "") finish what they have in hand and leave.
  void dismiss(const std::string& kind);
  // Those that were told to leave; kills after the deadline. Complains about any that did not end well.
  void wait_for_all(Clock::time_point deadline, Books& books);

  std::int64_t said(const std::string& word) const;
  int killed() const { return killed_; }
  std::int64_t held_when_killed() const { return held_when_killed_; }

 private:
  struct Process {
    std::string kind, name, buffer;
    pid_t pid = -1;
    int fd = -1;
    std::int64_t in_hand = 0;
    bool is_dismissed = false, is_victim = false;
  };

  void hear(Process& p, const std::string& line);
  void kill_now(std::size_t i);
  void read_from(Process& p);
  void reap(Process& p, int status);

  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::string, std::int64_t> said_;
  std::map<std::string, int> started_;
  int killed_ = 0;
  std::int64_t held_when_killed_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace demo
