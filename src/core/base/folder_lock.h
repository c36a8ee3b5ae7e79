// SPDX-License-Identifier: Apache-2.0
// A lock on a folder, so that one process at a time writes into it: two runs in one folder would
// mix their lines and checkpoints. A file in the folder names the holder and is removed with the
// lock.
//
// The holder is determined in this order:
// - The kernel's lock on the file (flock) is held: the holder is alive. The lock ends with its
//   process.
// - The file was written on this machine since its boot: the writer is dead, since the kernel's
//   lock is free. On a file system without such locks, pid and start time decide.
// - The file was written before this machine's boot, on a disk that no other machine mounts: dead.
// - Else the writer may be alive on another machine, whose locks this kernel may not see (NFS with
//   `nolock`, Lustre without `flock`). A holder increments a counter (beat) in the file; a holder
//   whose beat does not change for `kPatience` is dead. Clocks of two machines are never compared.
//   If several processes find it dead, the last one to write takes over (Fischer's protocol: write,
//   wait for kSettle, check).
// A holder that was frozen until another process took over detects this at its next beat or
// `check`: its file has another writer, or is gone because a successor has ended and removed it.
//
// Thread-safe: `check` from any thread; all else from one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/lock_file.h"
#include "isthmus/runtime.h"

namespace isthmus {

struct FolderOwner {
  ProcessIdentity process;
  std::string since;   // human-readable: "2026-11-27 14:05:11 UTC"
  bool cells = false;  // true: the holder also holds the folders below
};
/// "process 4711 on host nodeA, since 2026-11-27 14:05:11 UTC".
[[nodiscard]] std::string owner_text(const FolderOwner& owner);

class FolderLock {
 public:
  static constexpr Duration kBeat = std::chrono::seconds(5);
  static constexpr Duration kPatience = std::chrono::seconds(30);
  static constexpr Duration kSettle = std::chrono::seconds(1);

  struct Options {
    std::filesystem::path folder;  // created if absent
    std::string file;              // the lock's name in it
    std::string since;             // current time, human-readable
    /// Remedy in the error of a held folder: "give another --out".
    std::string remedy;
    Duration wait{0};  // time to wait for a holder to end
    /// Also hold the folders below, as for the cells of a comparison.
    bool cells = false;
    /// Called with a sentence before a wait. May be empty.
    std::function<void(const std::string&)> tell = {};
    /// Called during waits; its exception ends them. May be empty.
    std::function<void()> stop = {};
    // For tests: another machine, and a file system whose locks other machines do not see.
    ProcessIdentity self = this_process();
    bool kernel_locks = true;
    bool may_be_local = true;  // false: as on a disk that several machines mount
  };
  /// Takes the folder. Borrows `runtime`. THROWS: SystemError naming the holder, or when the folder
  /// cannot be written into.
  FolderLock(Runtime& runtime, Options options);
  /// Releases the lock. Removes the folder if this object created it and it is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return options_.folder; }
  /// Why this object no longer holds the folder; absent while it does. Any thread.
  [[nodiscard]] std::optional<std::string> loss() const;
  /// THROWS: SystemError with the text of `loss`, if any.
  void check() const;

 private:
  void make_folder();
  void remove_made();
  /// Checks that no comparison holds a folder above, since it would hold this one too. Called after
  /// the folder itself is locked. A comparison locks its own folder first and then checks below, so
  /// at least one of the two detects the other. THROWS: SystemError naming the holder.
  void check_above() const;
  /// One attempt. RETURNS: false when another process has written the file in the meantime.
  [[nodiscard]] bool try_take();
  /// True: the writer of `text` is alive; false: dead; absent: unknown.
  [[nodiscard]] std::optional<bool> lives(const std::string& text, bool kernel_held) const;
  /// Blocks for kPatience while the file contains `text`. RETURNS: true if it did until the end.
  [[nodiscard]] bool stands_still(const std::string& text);
  /// Called when the process of `text` holds the folder. THROWS: SystemError once options.wait is
  /// over. RETURNS: false, after a short wait.
  [[nodiscard]] bool wait_or_refuse(const std::string& text);
  [[nodiscard]] std::string record() const;
  void pause() const;
  /// The file's text about a successor; absent while the file is this object's.
  [[nodiscard]] std::optional<std::string> successor() const;
  void beat();

  Runtime& runtime_;
  const Options options_;
  const std::filesystem::path path_;
  const std::string id_;  // identifies this holding
  TimePoint give_up_;
  std::vector<std::filesystem::path> made_;  // folders, innermost first
  std::unique_ptr<LockFile> file_;
  bool local_ = false;
  bool told_ = false;
  bool said_ = false;  // the file names this process; false while the disk was full
  std::uint64_t beats_ = 0;
  std::unique_ptr<WaitQueue> queue_;
  bool leaves_ = false;             // under queue_'s lock
  std::string lost_by_;             // written once, before lost_ is set
  std::atomic<TimePoint> told_at_;  // time of the last beat in the file
  std::atomic<bool> lost_{false};
  std::unique_ptr<Task> task_;
};

/// The holder of `folder`, if that is known without waiting; absent if there is none.
[[nodiscard]] std::optional<FolderOwner> living_owner(const std::filesystem::path& folder,
                                                      const std::string& file);

}  // namespace isthmus
