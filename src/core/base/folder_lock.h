// SPDX-License-Identifier: Apache-2.0
// A folder that one process at a time may write into: two runs in one folder would mix their lines
// and checkpoints. A file in the folder says who holds it; it goes with the lock.
//
// Who holds a folder is decided in this order.
// - The kernel's lock on the file (flock) is held: by a living process. It ends with the process.
// - The file was written on this machine since its start: the writer is dead, for the kernel's lock
//   is free; where the file system has no such locks, the pid and its start time tell.
// - The file was written before this machine's start, on a disk that no other one mounts: dead.
// - Else the writer may live on another machine, whose locks this kernel need not know (NFS with
//   `nolock`, Lustre without `flock`). A holder counts a beat in the file; one whose beat stands
//   still for `kPatience` is dead. No clocks of two machines are compared. Of several that find it
//   dead the last to write takes over (Fischer's protocol: write, wait for kSettle, look).
// A holder that was frozen for so long that another took over sees that, at its next beat or when
// it asks: its file has another writer, or is gone, since a successor that has ended has removed
// it.
//
// Thread-safe: `check` from any thread; the rest belongs to one.
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
  std::string since;   // for people: "2026-11-27 14:05:11 UTC"
  bool cells = false;  // the folders below are its own too
};
/// "process 4711 on host nodeA, since 2026-11-27 14:05:11 UTC".
[[nodiscard]] std::string owner_text(const FolderOwner& owner);

class FolderLock {
 public:
  static constexpr Duration kBeat = std::chrono::seconds(5);
  static constexpr Duration kPatience = std::chrono::seconds(30);
  static constexpr Duration kSettle = std::chrono::seconds(1);

  struct Options {
    std::filesystem::path folder;  // made where it is absent
    std::string file;              // the lock's name in it
    std::string since;             // now, for people
    /// What to do about a folder that is taken: "give another --out".
    std::string remedy;
    Duration wait{0};  // for a holder to end
    /// The folders below are held too, as the cells of a comparison are.
    bool cells = false;
    /// Told a sentence before a wait. May be empty.
    std::function<void(const std::string&)> tell = {};
    /// Called during waits: what it throws ends them. May be empty.
    std::function<void()> stop = {};
    // For tests: another machine, and a file system whose locks other machines do not see.
    ProcessIdentity self = this_process();
    bool kernel_locks = true;
    bool may_be_local = true;  // false: as on a disk that several machines mount
  };
  /// Takes the folder. Borrows `runtime`. THROWS: SystemError naming the holder, or when the folder
  /// cannot be written into.
  FolderLock(Runtime& runtime, Options options);
  /// Leaves the folder, and removes it where this object made it and it is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return options_.folder; }
  /// Why the folder is not this object's any more; nothing while it is. Any thread.
  [[nodiscard]] std::optional<std::string> loss() const;
  /// THROWS: SystemError saying `loss`.
  void check() const;

 private:
  void make_folder();
  void remove_made();
  /// A comparison holds the folders of its cells too. After the folder itself is taken: the
  /// comparison takes its own and then looks below, so one of the two sees the other.
  /// THROWS: SystemError naming the holder.
  void check_above() const;
  /// One try. RETURNS: false when the file has changed hands meanwhile.
  [[nodiscard]] bool try_take();
  /// Whether the writer of `text` is known to live, or known to be dead; nothing: it may be either.
  [[nodiscard]] std::optional<bool> lives(const std::string& text, bool kernel_held) const;
  /// Blocks for kPatience while the file says `text`. RETURNS: whether it did to the end.
  [[nodiscard]] bool stands_still(const std::string& text);
  /// The folder is held by the process of `text`. THROWS: SystemError once options.wait is over.
  /// RETURNS: false, after a moment.
  [[nodiscard]] bool wait_or_refuse(const std::string& text);
  [[nodiscard]] std::string record() const;
  void pause() const;
  /// What the file says of a successor; nothing while it is this object's.
  [[nodiscard]] std::optional<std::string> successor() const;
  void beat();

  Runtime& runtime_;
  const Options options_;
  const std::filesystem::path path_;
  const std::string id_;  // of this holding
  TimePoint give_up_;
  std::vector<std::filesystem::path> made_;  // folders, innermost first
  std::unique_ptr<LockFile> file_;
  bool local_ = false;
  bool told_ = false;
  bool said_ = false;  // the file names this process; not yet where the disk was full
  std::uint64_t beats_ = 0;
  std::unique_ptr<WaitQueue> queue_;
  bool leaves_ = false;             // under queue_'s lock
  std::string lost_by_;             // written once, before lost_
  std::atomic<TimePoint> told_at_;  // when the file last said that this process lives
  std::atomic<bool> lost_{false};
  std::unique_ptr<Task> task_;
};

/// Who holds `folder`, where that is known without waiting; nothing when nobody does.
[[nodiscard]] std::optional<FolderOwner> living_owner(const std::filesystem::path& folder,
                                                      const std::string& file);

}  // namespace isthmus
