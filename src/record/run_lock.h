// SPDX-License-Identifier: Apache-2.0
// The lock of a run's folder: a process that writes a run, a comparison, a demo or a hub's log
// holds one while it may write. Readers (report, status, export, inspect) need none. The protocol
// is core/base/folder_lock.h; here are its real clock and its messages.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/folder_lock.h"
#include "core/base/system_runtime.h"

namespace isthmus::app {

/// Names of lock files; absent while no process holds the folder.
inline constexpr const char* kRunLockFile = "run.lock";
inline constexpr const char* kHubLockFile = "hub.lock";

/// For processes that start, or run along with, other processes that hold the folder. THROWS:
/// SystemError (exit code 4) naming the living process that writes a run into `folder`, and
/// `remedy`, by default that of RunLock.
void check_nobody_writes(const std::filesystem::path& folder, std::string_view remedy = {});

/// For commands that write beside runs. THROWS: SystemError when a living process writes a run into
/// `folder` or a folder above, or when `folder` is a checkpoint (state.json beside
/// model.safetensors) or lies among a run's: files written there would be taken for a checkpoint.
void check_outside_runs(const std::filesystem::path& folder);
/// The same of a file: a living run matters in its own folder alone, a checkpoint in a run's ckpt/.
void check_outside_run(const std::filesystem::path& file);

class RunLock {
 public:
  struct Options {
    const char* file = kRunLockFile;
    std::string remedy = "wait until it ends or stop it, or give another --out";
    Duration wait{0};    // for the holder to end
    bool cells = false;  // the folders below are held too
    /// Called during waits: an exception ends them. May be empty.
    std::function<void()> stop = {};
  };
  /// Takes `folder`, and creates it if missing. Logs waits. THROWS: SystemError (exit code 4)
  /// naming the holder's pid, host and start.
  explicit RunLock(const std::filesystem::path& folder) : RunLock(folder, Options()) {}
  RunLock(const std::filesystem::path& folder, const Options& options);

  [[nodiscard]] const std::filesystem::path& folder() const { return lock_.folder(); }
  /// THROWS: SystemError once a process on another machine has taken over the folder, because this
  /// process was suspended for too long.
  void check() const { lock_.check(); }
  [[nodiscard]] bool is_lost() const { return lock_.loss().has_value(); }

 private:
  SystemRuntime runtime_;
  FolderLock lock_;
};

}  // namespace isthmus::app
