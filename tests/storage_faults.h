// SPDX-License-Identifier: Apache-2.0
// A Storage that fails on request, over a real one: the disk fills up, or the process "dies" before
// a chosen operation. For tests; one thread.
//
// A death throws SimulatedCrash from that operation and from every later one, so that no clean-up
// code runs on the disk. Unsynced bytes are cut off, as a power failure may do. Syncs are recorded
// but not passed on: only the model of the disk needs them, and a sweep over hundreds of deaths
// would wait for the real disk.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "core/base/storage.h"

namespace isthmus {

/// Not a std::exception: no error handler may swallow it.
struct SimulatedCrash {
  std::int64_t operation = 0;
  std::string what;  // "rename ckpt/.tmp -> ckpt/step-1"
};

struct StorageFaults {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t crash_at_operation = kNever;  // counted from 0; see FaultyStorage::operations
  std::int64_t disk_full_after_bytes = kNever;
};

class FaultyStorage final : public Storage {
 public:
  /// `disk` is borrowed.
  FaultyStorage(Storage& disk, StorageFaults faults) : disk_(disk), faults_(faults) {}

  /// Number of changing operations so far: each append, sync, create, rename, remove, directory or
  /// link counts as one; reading does not count.
  [[nodiscard]] std::int64_t operations() const { return operations_; }

  /// Frees this many bytes of a full disk.
  void make_room(std::int64_t bytes) { faults_.disk_full_after_bytes += bytes; }

  [[nodiscard]] FileKind kind(const Path& path) const override;
  [[nodiscard]] MappedFile map(const Path& path) const override;
  [[nodiscard]] std::vector<std::byte> read(const Path& path) const override;
  [[nodiscard]] std::vector<std::string> list(const Path& directory) const override;
  [[nodiscard]] Path read_link(const Path& link) const override;
  [[nodiscard]] std::uint64_t free_bytes(const Path& path) const override;
  [[nodiscard]] std::unique_ptr<WritableFile> create(const Path& path) override;
  [[nodiscard]] std::unique_ptr<WritableFile> append(const Path& path) override;
  void rename(const Path& from, const Path& to) override;
  void remove(const Path& path) override;
  void remove_all(const Path& path) override;
  void create_directories(const Path& directory) override;
  void create_link(const Path& target, const Path& link) override;
  void sync_directory(const Path& directory) override;

 private:
  class File;
  /// Counts one operation; throws when the process is dead or dies here.
  void operation(const std::string& what);
  void require_alive() const;
  /// Number of bytes of an append that still fit; counts them as used.
  std::size_t take_space(std::size_t bytes);
  void crash();

  Storage& disk_;
  StorageFaults faults_;
  std::int64_t operations_ = 0;
  std::int64_t written_ = 0;
  bool dead_ = false;
  std::map<Path, std::uintmax_t> durable_;  // files with unsynced bytes -> their synced length
};

}  // namespace isthmus
