#include "foreman.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace demo {

Foreman::~Foreman() {
  for (auto& p : processes_) {
    ::kill(p->pid, SIGKILL);
    ::waitpid(p->pid, nullptr, 0);
    ::close(p->fd);
  }
}

void Foreman::start(const std::string& kind) {
  auto p = std::make_unique<Process>();
  p->kind = kind;
  p->name = kind + "-" + std::to_string(++started_[kind]);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = "baton_demo", mode = "worker";
  char* arguments[] = {program.data(), mode.data(), p->kind.data(), p->name.data(), nullptr};
  const int failure = ::posix_spawn(&p->pid, "/proc/self/exe", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  p->fd = ends[0];
  if (failure != 0) throw std::runtime_error(std::string("cannot start a worker: ") + std::strerror(failure));
  ::fcntl(p->fd, F_SETFL, O_NONBLOCK);
  processes_.push_back(std::move(p));
}

void Foreman::hear(Process& p, const std::string& line) {
  const auto space = line.find(' ');
  const std::string word = line.substr(0, space);
  const auto number = space == std::string::npos ? 1 : std::strtoll(line.c_str() + space + 1, nullptr, 10);
  if (word == "in_hand") p.in_hand = number;
  else if (word == "victim") p.is_victim = true;
  else said_[word] += number;
}

void Foreman::read_from(Process& p) {
  char chunk[4096];
  for (;;) {
    const auto n = ::read(p.fd, chunk, sizeof chunk);
    if (n <= 0) break;
    p.buffer.append(chunk, static_cast<std::size_t>(n));
  }
  std::size_t end;
  while ((end = p.buffer.find('\n')) != std::string::npos) {
    hear(p, p.buffer.substr(0, end));
    p.buffer.erase(0, end + 1);
  }
}

void Foreman::reap(Process& p, int status) {
  read_from(p);
  ::close(p.fd);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (p.is_dismissed && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) return;  // told to leave before it could listen
  complaints_.push_back("worker " + p.name + " ended badly: " +
                        (WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status)) : "signal " + std::to_string(WTERMSIG(status))));
}

void Foreman::kill_now(std::size_t i) {
  auto& p = *processes_[i];
  ::kill(p.pid, SIGKILL);
  ::waitpid(p.pid, nullptr, 0);
  read_from(p);
  ::close(p.fd);
  killed_++;
  held_when_killed_ += p.in_hand;
  processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i));
}

void Foreman::listen(int timeout_ms) {
  std::vector<pollfd> fds;
  for (auto& p : processes_) fds.push_back({p->fd, POLLIN, 0});
  ::poll(fds.data(), fds.size(), timeout_ms);
  for (auto& p : processes_) read_from(*p);
  for (std::size_t i = processes_.size(); i-- > 0;) {
    if (processes_[i]->is_victim) {
      kill_now(i);
      continue;
    }
    int status;
    if (::waitpid(processes_[i]->pid, &status, WNOHANG) == processes_[i]->pid) {
      reap(*processes_[i], status);
      processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void Foreman::kill_one(const std::string& kind) {
  listen(0);
  for (std::size_t i = 0; i < processes_.size(); i++) {
    if (processes_[i]->kind != kind) continue;
    kill_now(i);
    start(kind);
    return;
  }
}

void Foreman::dismiss(const std::string& kind) {
  for (auto& p : processes_) {
    if ((!kind.empty() && p->kind != kind) || p->is_dismissed) continue;
    p->is_dismissed = true;
    ::kill(p->pid, SIGTERM);
  }
}

void Foreman::wait_for_all(Clock::time_point deadline, Books& books) {
  while (!processes_.empty() && Clock::now() < deadline) listen(50);
  for (auto& p : processes_) complaints_.push_back("worker " + p->name + " did not leave when it was told to");
  while (!processes_.empty()) kill_now(processes_.size() - 1);
  books.complaints.insert(books.complaints.end(), complaints_.begin(), complaints_.end());
}

std::int64_t Foreman::said(const std::string& word) const {
  const auto it = said_.find(word);
  return it == said_.end() ? 0 : it->second;
}

}  // namespace demo
