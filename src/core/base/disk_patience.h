// SPDX-License-Identifier: Apache-2.0
// A write that a full disk refuses is tried again for a while: somebody may free space, and what is
// trained is lost otherwise. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "core/base/storage.h"
#include "isthmus/runtime.h"

namespace isthmus {

/// What those who wait for the process wish of its tries.
enum class DiskWish {
  kTryOn,
  kHurry,  // it will be killed soon
  kGiveUp,
};

class DiskPatience {
 public:
  static constexpr Duration kInAll = std::chrono::minutes(10);
  static constexpr Duration kBetween = std::chrono::seconds(5);

  /// From the first kHurry on. Slurm kills 30 s after its SIGTERM.
  static constexpr Duration kHurried = std::chrono::seconds(20);

  /// Borrows `runtime`. `wish`: asked often during a wait; may be empty.
  explicit DiskPatience(Runtime& runtime, std::function<DiskWish()> wish = {})
      : runtime_(runtime), wish_(std::move(wish)) {}

  /// Runs `write`, again after each DiskFullError, for kInAll at most. `what`: for the log, "the
  /// checkpoint of step 40". Blocks. THROWS: the last DiskFullError, with how long it was tried;
  /// everything else that `write` throws, at once.
  void write(const std::string& what, const std::function<void()>& write) const;

 private:
  Runtime& runtime_;
  const std::function<DiskWish()> wish_;
};

/// Appends `bytes` once, also where the disk takes them in parts. `patience` may be null: there is
/// none. `before`: called before each try; may be empty. THROWS: as DiskPatience::write, and
/// `before`.
void append_patiently(WritableFile& file, std::span<const std::byte> bytes,
                      const DiskPatience* patience, const std::string& what,
                      const std::function<void()>& before = {});

}  // namespace isthmus
