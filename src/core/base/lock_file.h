// SPDX-License-Identifier: Apache-2.0
// The file of a folder's lock as the operating system sees it: a short text, the kernel's lock on
// it, and what is known of the process that wrote it. `FolderLock` (folder_lock.h) is the protocol
// above and the only caller. Every failure THROWS: SystemError naming the path, DiskFullError
// (storage.h) where there is no room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

/// A process, told apart from all others of all machines for as long as a lock may matter.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::string host;
  std::string boot;       // this start of this kernel; empty where the system does not tell
  std::string pid_space;  // pids of unlike spaces cannot be compared
  std::string begun;      // by the kernel's clock: a pid comes again
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
[[nodiscard]] ProcessIdentity this_process();

/// REQUIRES: `process` is of this kernel and pid space. Whether the process lives.
[[nodiscard]] bool process_lives(const ProcessIdentity& process);

/// Whether the process is one that has started this one, by any number of processes between them
/// that are still there.
[[nodiscard]] bool has_started_this_process(const ProcessIdentity& process);

/// Whether the folder is on a file system that only this machine mounts. An unknown kind is not.
[[nodiscard]] bool is_on_local_disk(const std::filesystem::path& folder);

/// Whether another process holds the kernel's lock on the file; nothing where the file system has
/// no such locks. Holds it for a moment itself.
[[nodiscard]] std::optional<bool> is_locked(const std::filesystem::path& file);

/// The file's text; nothing where the file is absent.
[[nodiscard]] std::optional<std::string> text_of_lock_file(const std::filesystem::path& file);

class LockFile {
 public:
  /// Opens the file, and makes it where it is absent; not where its folder is.
  explicit LockFile(const std::filesystem::path& path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  /// Whether this object has made the file. Of several processes at most one has.
  [[nodiscard]] bool made() const { return made_; }

  enum class Attempt { kHeld, kTaken, kUnsupported };
  /// Asks for the kernel's lock, which ends with the process; does not wait. kUnsupported: the file
  /// system has none.
  [[nodiscard]] Attempt try_lock();

  /// Whether the path still names this file.
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
