// SPDX-License-Identifier: Apache-2.0
// Transfers a fragment's values between the first rank of a site, which has them whole, and the
// lanes of all its ranks. Calls are collective; whole values are used only on the first rank. One
// thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outer/parts/lanes.h"
#include "transport/collectives/communicator.h"

namespace isthmus::outer {

class LaneExchange {
 public:
  static constexpr int kFirst = 0;

  /// For fragments of n values; borrows `ranks`.
  LaneExchange(std::size_t n, Communicator& ranks);

  [[nodiscard]] bool first() const { return ranks_.rank() == kFirst; }
  [[nodiscard]] Communicator& ranks() const { return ranks_; }
  [[nodiscard]] LaneRange lane() const { return lanes_[static_cast<std::size_t>(ranks_.rank())]; }
  [[nodiscard]] const std::vector<LaneRange>& lanes() const { return lanes_; }

  /// Scatters values [window.begin, window.end) of the fragment, at `whole`, to their lanes; gather
  /// is the inverse. own (lane size,): this rank's lane.
  void scatter(LaneRange window, const float* whole, std::span<float> own);
  void gather(LaneRange window, std::span<const float> own, float* whole);
  /// Scatters, or gathers, a contiguous share per rank: counts[r] values for rank r, own.size()
  /// here.
  void scatter(std::span<const std::int64_t> counts, ConstValues whole, Values own);
  void gather(std::span<const std::int64_t> counts, ConstValues own, Values whole);

 private:
  /// Number of the window's values in each lane.
  [[nodiscard]] std::vector<std::int64_t> counts_in(LaneRange window) const;
  [[nodiscard]] std::int64_t own_of(std::span<const std::int64_t> counts) const {
    return counts[static_cast<std::size_t>(ranks_.rank())];
  }

  Communicator& ranks_;
  std::vector<LaneRange> lanes_;
};

}  // namespace isthmus::outer
