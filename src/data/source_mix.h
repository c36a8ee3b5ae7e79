// SPDX-License-Identifier: Apache-2.0
// Which of several sources each sample of a run is of, for `[data] mix`: a pure function of (seed,
// number of the sample), so that a run resumes anywhere and no source needs a counter.
//
// Samples have the points x_g = (g p + o) mod Q of a Kronecker sequence; o is from the seed. Source
// k takes the points in its part of [0, Q), whose length is its share. Any stretch of n samples
// then holds n times the share of each source but for a few, O(log n): p / Q is a continued
// fraction of ones and twos alone (Niederreiter, Random Number Generation and Quasi-Monte Carlo
// Methods, 1992, section 3.1). How many samples of a source there were before sample g is a sum of
// floors, which takes O(log Q) steps as Euclid's algorithm does. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

class SourceMix {
 public:
  /// shares: of the sources, in any unit; each above 0 and finite. stream: of several sequences
  /// with one seed, evenly apart, which one of `streams`.
  SourceMix(std::span<const double> shares, std::uint64_t seed, std::int64_t stream = 0,
            std::int64_t streams = 1);

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  // of the sample among those of its source
  };
  /// Of sample g >= 0.
  [[nodiscard]] Place at(std::int64_t g) const;
  /// Samples of source k among the first g.
  [[nodiscard]] std::int64_t count(std::size_t k, std::int64_t g) const;

 private:
  /// Points below `border` among the first g.
  [[nodiscard]] std::int64_t below(std::int64_t border, std::int64_t g) const;

  std::vector<std::int64_t> borders_;  // of the sources' parts: from 0 to Q
  std::int64_t origin_ = 0;            // o
};

}  // namespace isthmus
