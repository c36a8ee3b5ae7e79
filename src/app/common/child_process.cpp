// SPDX-License-Identifier: Apache-2.0
#include "app/common/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr int kNotStarted = 127;  // as a shell says

/// Between fork and exec: async-signal-safe calls alone.
[[noreturn]] void become(const std::vector<char*>& argv, int output, pid_t parent,
                         int network_space) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(kNotStarted);  // it died before the line above
  }
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) {
    ::dup2(nothing, STDIN_FILENO);
  }
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (network_space < 0 || ::setns(network_space, CLONE_NEWNET) == 0) {
    ::execvp(argv[0], argv.data());
  }
  constexpr char kText[] = "cannot be started: ";
  const char* why = std::strerror(errno);
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  written = ::write(STDERR_FILENO, why, std::strlen(why));
  written = ::write(STDERR_FILENO, "\n", 1);
  ::_exit(kNotStarted);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, int network_space) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError(fmt::format("no pipe to {}: {}; raise the limit of open files (ulimit -n)",
                                  argv.front(), std::strerror(errno)));
  }
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));  // exec writes nothing into them
  }
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(words, ends[1], parent, network_space);
  }
  const int error = errno;
  if (pid_ > 0) {
    ::setpgid(pid_, pid_);  // as the child does: whichever of the two comes first
  }
  ::close(ends[1]);
  if (pid_ < 0) {
    ::close(ends[0]);
    throw SystemError(
        fmt::format("{} cannot be started: {}; raise the limit on processes (ulimit -u)",
                    argv.front(), std::strerror(error)));
  }
  pipe_ = ends[0];
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      unfinished_(std::move(other.unfinished_)),
      exit_code_(other.exit_code_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pipe_, other.pipe_);
  std::swap(unfinished_, other.unfinished_);
  std::swap(exit_code_, other.exit_code_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !exit_code_) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) {
    ::close(pipe_);
  }
}

void ChildProcess::send(Signal signal) const {
  if (!exit_code_) {
    ::kill(-pid_, signal == Signal::kInterrupt   ? SIGINT
                  : signal == Signal::kTerminate ? SIGTERM
                  : signal == Signal::kUser1     ? SIGUSR1
                                                 : SIGKILL);
  }
}

void ChildProcess::take_output(const std::function<void(const std::string&)>& line) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(pipe_, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) {
    return;
  }
  unfinished_.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  for (std::size_t end = 0; (end = unfinished_.find('\n')) != std::string::npos;) {
    line(unfinished_.substr(0, end));
    unfinished_.erase(0, end + 1);
  }
  if (got > 0) {
    return;
  }
  if (!unfinished_.empty()) {
    line(std::exchange(unfinished_, {}));
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void read_lines(std::vector<ChildProcess>& children, int timeout_ms,
                const std::function<void(std::size_t child, const std::string&)>& line) {
  std::vector<pollfd> items;
  std::vector<std::size_t> whose;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (!children[i].exit_code_) {
      items.push_back({children[i].pipe_, POLLIN, 0});
      whose.push_back(i);
    }
  }
  if (::poll(items.data(), items.size(), timeout_ms) <= 0) {
    return;
  }
  for (std::size_t k = 0; k < items.size(); ++k) {
    if (items[k].revents != 0) {
      children[whose[k]].take_output([&](const std::string& text) { line(whose[k], text); });
    }
  }
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

std::string shell_line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) {
    line += (line.empty() ? "" : " ") + shell_word(word);
  }
  return line;
}

}  // namespace isthmus::app
