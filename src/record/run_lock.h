// SPDX-License-Identifier: Apache-2.0
// The lock of a run's folder: whoever writes a run, a comparison, a demo or a hub's log holds one
// for as long as it may write. Readers (report, status, export, inspect) take none. The protocol is
// core/base/folder_lock.h; here are its real clock and its words.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/folder_lock.h"
#include "core/base/system_runtime.h"

namespace isthmus::app {

/// Names of lock files; they are gone when nobody holds the folder.
inline constexpr const char* kRunLockFile = "run.lock";
inline constexpr const char* kHubLockFile = "hub.lock";

/// For those who start or stand beside processes that hold the folder themselves.
/// THROWS: SystemError (exit code 4) naming the living process that writes a run into `folder`, and
/// `remedy`, by default that of RunLock.
void check_nobody_writes(const std::filesystem::path& folder, std::string_view remedy = {});

/// THROWS: SystemError where `folder` is a checkpoint, or lies among the checkpoints of a run: what
/// is written there would take a checkpoint's place.
void check_outside_checkpoints(const std::filesystem::path& folder);

class RunLock {
 public:
  struct Options {
    const char* file = kRunLockFile;
    std::string remedy = "wait until it ends or stop it, or give another --out";
    Duration wait{0};    // for the holder to end
    bool cells = false;  // the folders below are held too
    /// Called during waits: what it throws ends them. May be empty.
    std::function<void()> stop = {};
  };
  /// Takes `folder`, and makes it where it is absent. What there is to wait for goes to the log.
  /// THROWS: SystemError (exit code 4) naming the holder's pid, host and start.
  explicit RunLock(const std::filesystem::path& folder) : RunLock(folder, Options()) {}
  RunLock(const std::filesystem::path& folder, const Options& options);

  [[nodiscard]] const std::filesystem::path& folder() const { return lock_.folder(); }
  /// THROWS: SystemError once another machine's process has taken the folder over, because this one
  /// stood still for too long.
  void check() const { lock_.check(); }
  [[nodiscard]] bool is_lost() const { return lock_.loss().has_value(); }

 private:
  SystemRuntime runtime_;
  FolderLock lock_;
};

}  // namespace isthmus::app
