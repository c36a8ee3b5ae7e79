// SPDX-License-Identifier: Apache-2.0
// Child processes of this program: their output line by line, and their end. They die with this
// process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isthmus::app {

class ChildProcess {
 public:
  /// Starts `argv[0]`, looked up in PATH, with both outputs in one pipe and no input. The child has
  /// its own process group, so signals of the terminal reach it only through this program.
  /// `network_space`: descriptor of its network namespace; -1: this process's. THROWS: SystemError
  /// when the machine refuses.
  explicit ChildProcess(const std::vector<std::string>& argv, int network_space = -1);
  /// Kills the child if it is still running.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  /// Its exit code, after its end and the end of its output; 128 + N when signal N killed it.
  [[nodiscard]] const std::optional<int>& exit_code() const { return exit_code_; }
  enum class Signal { kInterrupt, kTerminate, kUser1, kKill };
  /// Does nothing after its end.
  void send(Signal signal) const;

 private:
  friend void read_lines(std::vector<ChildProcess>& children, int timeout_ms,
                         const std::function<void(std::size_t child, const std::string&)>& line);
  void take_output(const std::function<void(const std::string&)>& line);

  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string unfinished_;
  std::optional<int> exit_code_;
};

/// Waits for output or the end of any child, for at most `timeout_ms`, and passes on whole lines.
void read_lines(std::vector<ChildProcess>& children, int timeout_ms,
                const std::function<void(std::size_t child, const std::string&)>& line);

/// The path of the running program.
[[nodiscard]] std::string own_program();

/// `text` as one word of a POSIX shell.
[[nodiscard]] std::string shell_word(const std::string& text);
[[nodiscard]] std::string shell_line(const std::vector<std::string>& argv);

}  // namespace isthmus::app
