// SPDX-License-Identifier: Apache-2.0
// Retries writes to a full disk for a time: a user may free space, and training would be lost
// otherwise. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "core/base/storage.h"
#include "isthmus/runtime.h"

namespace isthmus {

/// Request of the process's owner to a retry.
enum class DiskWish {
  kTryOn,
  kHurry,  // the process will be killed soon
  kGiveUp,
};

class DiskPatience {
 public:
  static constexpr Duration kInAll = std::chrono::minutes(10);
  static constexpr Duration kBetween = std::chrono::seconds(5);

  /// Time from the first kHurry on. Slurm kills 30 s after its SIGTERM.
  static constexpr Duration kHurried = std::chrono::seconds(20);

  /// Borrows `runtime`. `wish`: called often during a wait; may be empty.
  explicit DiskPatience(Runtime& runtime, std::function<DiskWish()> wish = {})
      : runtime_(runtime), wish_(std::move(wish)) {}

  /// Runs `write`, again after each DiskFullError, for kInAll at most. `what`: for the log, "the
  /// checkpoint of step 40". Blocks. THROWS: the last DiskFullError, with the time of the retries;
  /// all other exceptions of `write` at once.
  void write(const std::string& what, const std::function<void()>& write) const;

 private:
  Runtime& runtime_;
  const std::function<DiskWish()> wish_;
};

/// Appends `bytes` once, in parts if the disk accepts only parts. `patience` may be null: no
/// retries. `before`: called before each attempt; may be empty. THROWS: as DiskPatience::write, and
/// exceptions of `before`.
void append_patiently(WritableFile& file, std::span<const std::byte> bytes,
                      const DiskPatience* patience, const std::string& what,
                      const std::function<void()>& before = {});

}  // namespace isthmus
