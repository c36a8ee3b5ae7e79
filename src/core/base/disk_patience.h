// SPDX-License-Identifier: Apache-2.0
// A write that a full disk refuses is tried again for a while: somebody may free space, and what is
// trained is lost otherwise. Any thread.
#pragma once

#include <functional>
#include <string>

#include "isthmus/runtime.h"

namespace isthmus {

class DiskPatience {
 public:
  static constexpr Duration kInAll = std::chrono::minutes(10);
  static constexpr Duration kBetween = std::chrono::seconds(5);

  /// Borrows `runtime`. `gives_up`: true ends the tries; may be empty.
  explicit DiskPatience(Runtime& runtime, std::function<bool()> gives_up = {})
      : runtime_(runtime), gives_up_(std::move(gives_up)) {}

  /// Runs `write`, again after each DiskFullError, for kInAll at most. `what`: for the log, "the
  /// checkpoint of step 40". Blocks. THROWS: the last DiskFullError, with how long it was tried;
  /// everything else that `write` throws, at once.
  void write(const std::string& what, const std::function<void()>& write) const;

 private:
  Runtime& runtime_;
  const std::function<bool()> gives_up_;
};

}  // namespace isthmus
