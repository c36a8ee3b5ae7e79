// SPDX-License-Identifier: Apache-2.0
// Errors that leave the library as exceptions. Each text names the thing, the value, the cause and
// the remedy, on one line. Faults that a wide-area run expects (peer lost, late, corrupt frame) are
// values first, Expected<T, E>; a fault that the run cannot survive ends as a PeerError.
#pragma once

#include <stdexcept>
#include <string>

namespace isthmus {

/// Process exit codes of the command line (stable).
enum class ExitCode : int {
  kOk = 0,
  kRunFailed = 1,
  kUsage = 2,
  kConfig = 3,
  kEnvironment = 4,
  kPeer = 5,
  kTargetMissed = 6,
  kCheckpointedRequeue = 85,
  kInterrupted = 130,
};

/// Base of the library's exceptions; an uncaught one ends a command with `exit_code`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

/// A configuration that cannot be used: `outer.H = 0: must be >= 1 (inner steps between syncs)`.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& text) : Error(ExitCode::kConfig, text) {}
};

/// A failed file, device or system call: names the path or call, the cause, the remedy.
class SystemError : public Error {
 public:
  explicit SystemError(const std::string& text) : Error(ExitCode::kEnvironment, text) {}
};

/// A run that cannot continue (diverged, inconsistent state).
class RunError : public Error {
 public:
  explicit RunError(const std::string& text) : Error(ExitCode::kRunFailed, text) {}
};

/// The run cannot continue because peers are lost or have different settings.
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& text) : Error(ExitCode::kPeer, text) {}
};

}  // namespace isthmus
