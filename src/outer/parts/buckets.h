// SPDX-License-Identifier: Apache-2.0
// ddp's buckets: the canonical layout in backward order (last tensor first), cut into pieces of
// equal capacity so that the exchange of the first overlaps the backward pass of the rest. A tensor
// larger than what is left of a bucket is split, so every element is in exactly one bucket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isthmus/inner_loop.h"

namespace isthmus::outer {

/// 16 MiB of fp32: a frame's header and a round's latency are short relative to the transfer, and a
/// model of 100 M parameters still has about twenty buckets that can overlap.
inline constexpr std::size_t kBucketValues = std::size_t{1} << 22;

/// Elements [begin, begin + size) of one parameter.
struct Slice {
  std::size_t parameter = 0;
  std::size_t begin = 0;
  std::size_t size = 0;
};

struct Bucket {
  std::vector<Slice> slices;
  std::size_t values = 0;
};

/// REQUIRES: capacity >= 1.
[[nodiscard]] std::vector<Bucket> make_buckets(std::span<const Parameter> parameters,
                                               std::size_t capacity);

}  // namespace isthmus::outer
