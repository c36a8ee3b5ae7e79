// SPDX-License-Identifier: Apache-2.0
// Encodes a few values as codes of two bits into a table of four means: the quantiser of hivemind,
// INTELLECT-1 and SparseLoCo's public code with 4 bins. The bins are 6 sigma / 4 = 1.5 sigma wide
// and centred at mean - 3, - 1.5, 0 and + 1.5 sigma, the outer two open; sigma is the standard
// deviation of the values, with n - 1. A bin decodes to the mean of its values.
//   | mean[0] | mean[1] | mean[2] | mean[3] |  bf16 each, 0 for an empty bin
//   | k codes of 2 bits, low bits first     |  ceil(k / 4) bytes, unused bits 0
// DETERMINISM: fp64 sums in order; one division and one rounding a mean. Stateless; any thread.
#pragma once

#include <cstddef>
#include <span>

namespace isthmus {

/// Number of bytes for k values; 0 for none.
[[nodiscard]] std::size_t bucket_mean_bytes(std::size_t k);
/// Values that are not finite are encoded so that every reader rejects them. REQUIRES: out.size()
/// == bucket_mean_bytes(values.size()).
void write_bucket_means(std::span<const float> values, std::span<std::byte> out);
/// RETURNS: false when a mean is not finite or unused bits are set.
[[nodiscard]] bool read_bucket_means(std::span<const std::byte> bytes, std::span<float> values);

}  // namespace isthmus
