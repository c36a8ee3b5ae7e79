// SPDX-License-Identifier: Apache-2.0
// The operating system's view of a folder's lock file: a short text, the kernel's lock on it, and
// facts about the process that wrote it. `FolderLock` (folder_lock.h) is the protocol above and the
// only caller. Every failure THROWS: SystemError naming the path, DiskFullError (storage.h) when
// the disk is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

/// The identity of a process, distinct from all processes of all machines for as long as a lock may
/// matter.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::string host;
  std::string boot;       // boot id of the kernel; empty if the system has none
  std::string pid_space;  // pids of different spaces cannot be compared
  std::string begun;      // start time by the kernel's clock, since pids are reused
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
[[nodiscard]] ProcessIdentity this_process();

/// True if the process is alive. REQUIRES: `process` is of this kernel and pid space.
[[nodiscard]] bool process_lives(const ProcessIdentity& process);

/// True if the process is an ancestor of this one, through processes that still exist.
[[nodiscard]] bool has_started_this_process(const ProcessIdentity& process);

/// True if the folder is on a file system that only this machine mounts. False for an unknown kind.
[[nodiscard]] bool is_on_local_disk(const std::filesystem::path& folder);

/// True if another process holds the kernel's lock on the file; absent if the file system has no
/// such locks. Briefly takes the lock itself.
[[nodiscard]] std::optional<bool> is_locked(const std::filesystem::path& file);

/// The file's text; absent if there is no file.
[[nodiscard]] std::optional<std::string> text_of_lock_file(const std::filesystem::path& file);

class LockFile {
 public:
  /// Opens the file, and creates it if absent, but not its folder.
  explicit LockFile(const std::filesystem::path& path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  /// True if this object created the file. Of several processes at most one did.
  [[nodiscard]] bool made() const { return made_; }

  enum class Attempt { kHeld, kTaken, kUnsupported };
  /// Tries to take the kernel's lock, which ends with the process; does not wait. kUnsupported: the
  /// file system has no locks.
  [[nodiscard]] Attempt try_lock();

  /// True if the path still names this file.
  [[nodiscard]] bool is_at_path() const;
  [[nodiscard]] std::string read() const;
  void write(std::string_view text);
  /// Blocks until the text is on the disk, or on the file server.
  void sync();
  /// Removes the file from its folder.
  void remove();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool made_ = false;
};

}  // namespace isthmus
