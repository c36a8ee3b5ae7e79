// SPDX-License-Identifier: Apache-2.0
// What guesses about bytes without a header look at, and the chances that they weigh: a sample of a
// file's 16-bit words, and logarithms of probabilities under the null hypothesis of file_format.h.
// Private to the guesses. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

using Bytes = std::span<const std::byte>;
using Words = std::vector<std::uint16_t>;

/// Blocks spread over the file: all of a file of at most 1 MiB. Each begins at a multiple of 4096.
[[nodiscard]] std::vector<Bytes> sample_of(Bytes bytes);
/// The sample as words; an even number from each block.
[[nodiscard]] Words words_of(const std::vector<Bytes>& sample);
/// The words that are evidence of their own: one period, or as many as make a multiple of
/// `multiple`, where the whole sample repeats it block by block; else all.
[[nodiscard]] std::span<const std::uint16_t> independent(const Words& words, std::size_t multiple);

[[nodiscard]] inline std::uint16_t swapped(std::uint16_t word) {
  return static_cast<std::uint16_t>(word << 8U | word >> 8U);
}

[[nodiscard]] double log_choose(std::int64_t n, std::int64_t k);
/// Log of the chance that all but `others` of `places` places of `all` hold values of a kind that
/// `kind` of them are, when order does not depend on the place; or a bound of it.
[[nodiscard]] double log_chance(std::int64_t kind, std::int64_t places, std::int64_t all,
                                std::int64_t others = 0);
/// The same of at least `hits` among `n` that are each of a kind with a chance of `p`.
[[nodiscard]] double log_binomial_tail(std::int64_t n, std::int64_t hits, double p);
/// A bound of the same of trials with unlike chances, for at least `hits` of them, or if `at_most`
/// for at most so many. REQUIRES: chances above 0 and below 1.
[[nodiscard]] double log_tail_of_trials(std::span<const double> chances, std::int64_t hits,
                                        bool at_most);

}  // namespace isthmus
