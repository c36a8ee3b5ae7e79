// SPDX-License-Identifier: Apache-2.0
// Random numbers one after another, for made-up cases.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/rng.h"

namespace isthmus {

class Draws {
 public:
  explicit Draws(int seed) : rng_(static_cast<std::uint64_t>(seed), Stream::kTestData) {}
  double uniform(double low, double high) { return low + (high - low) * rng_.uniform(next_++); }
  /// low .. high, both included.
  int whole(int low, int high) {
    return low + static_cast<int>(rng_.below(static_cast<std::uint64_t>(high - low + 1), next_++));
  }
  /// sigma: standard deviation of the logarithm.
  double lognormal(double sigma) { return std::exp(sigma * rng_.normal(next_++)); }

 private:
  const Rng rng_;
  std::uint64_t next_ = 0;
};

}  // namespace isthmus
