// SPDX-License-Identifier: Apache-2.0
// Assigns each sample of a run to one of several sources, for `[data] mix`: a pure function of
// (seed, number of the sample), so that a run resumes anywhere and no source needs a counter.
//
// Samples have the points x_g = (g p + o) mod Q of a Kronecker sequence; o comes from the seed.
// Source k gets the points in its part of [0, Q), whose length is its share. Any n consecutive
// samples then hold n times the share of each source up to an error of O(log n): p / Q is a
// continued fraction of only ones and twos (Niederreiter, Random Number Generation and Quasi-Monte
// Carlo Methods, 1992, section 3.1). The number of a source's samples before sample g is a sum of
// floors, which takes O(log Q) steps as Euclid's algorithm does. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

class SourceMix {
 public:
  /// shares: of the sources, in any unit; each positive and finite. stream: selects one of
  /// `streams` sequences with the same seed, whose origins are evenly spaced.
  SourceMix(std::span<const double> shares, std::uint64_t seed, std::int64_t stream = 0,
            std::int64_t streams = 1);

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  // index of the sample among those of its source
  };
  /// The source of sample g >= 0.
  [[nodiscard]] Place at(std::int64_t g) const;
  /// Number of samples of source k among the first g.
  [[nodiscard]] std::int64_t count(std::size_t k, std::int64_t g) const;

 private:
  /// Number of points below `border` among the first g.
  [[nodiscard]] std::int64_t below(std::int64_t border, std::int64_t g) const;

  std::vector<std::int64_t> borders_;  // borders of the sources' parts: from 0 to Q
  std::int64_t origin_ = 0;            // o
};

}  // namespace isthmus
