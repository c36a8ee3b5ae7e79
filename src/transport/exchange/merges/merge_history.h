// SPDX-License-Identifier: Apache-2.0
// The merges of a run as a hub keeps them (session/hub/merge_log.h): each is on disk before any
// member is told, so that a member that comes late, or the hub's next process, has all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

class MergeHistory {
 public:
  virtual ~MergeHistory() = default;
  /// The numbers of the first and the last merge that is here; both 0: none is.
  [[nodiscard]] virtual std::int64_t first() const = 0;
  [[nodiscard]] virtual std::int64_t last() const = 0;
  /// Keeps the next merge, as write_merge writes it. Returns once it is on disk. THROWS:
  /// SystemError; no member may be told anything after that.
  virtual void append(std::int64_t number, std::span<const std::byte> merge) = 0;
  /// REQUIRES: first() <= number <= last(). THROWS: SystemError.
  [[nodiscard]] virtual std::vector<std::byte> read(std::int64_t number) const = 0;
};

}  // namespace isthmus
