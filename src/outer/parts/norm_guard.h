// SPDX-License-Identifier: Apache-2.0
// Checks that an outer gradient is fit to be counted: finite, and not far above this worker's
// earlier norms. A worker's corrupt window must not reach the anchors of all workers. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

class NormGuard {
 public:
  /// `limit`: a norm above `limit` times the median of the fragment's last norms is an outlier; 0:
  /// no norm is.
  NormGuard(std::size_t fragments, double limit) : limit_(limit), past_(fragments) {}

  /// True if a Delta of this norm is fit. Records a finite norm.
  [[nodiscard]] bool accepts(FragmentId id, double norm);

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  static constexpr std::size_t kPast = 16;   // number of recorded norms
  static constexpr std::size_t kEnough = 8;  // with fewer norms there are no outliers
  using Past = std::array<float, kPast>;     // newest first; 0: none yet, or a zero norm
  double limit_;
  std::vector<Past> past_;  // by fragment
};

}  // namespace isthmus::outer
