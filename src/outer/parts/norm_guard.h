// SPDX-License-Identifier: Apache-2.0
// Whether an outer gradient is fit to be counted: finite, and not far above what this worker has
// been sending. One worker's broken window must not reach the anchors of all. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

class NormGuard {
 public:
  /// `limit`: so many times the median of the fragment's last norms is an outlier; 0: none is.
  NormGuard(std::size_t fragments, double limit) : limit_(limit), past_(fragments) {}

  /// Whether a Delta of that norm is fit. A finite norm joins the past.
  [[nodiscard]] bool accepts(FragmentId id, double norm);

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  static constexpr std::size_t kPast = 16;   // norms that are remembered
  static constexpr std::size_t kEnough = 8;  // fewer say nothing yet
  using Past = std::array<float, kPast>;     // newest first; 0: none yet, or no movement
  double limit_;
  std::vector<Past> past_;  // by fragment
};

}  // namespace isthmus::outer
