// SPDX-License-Identifier: Apache-2.0
// The freeze of the variance in 1-bit Adam and 0/1 Adam. Elements without any gradient so far have
// v = 0. They are masked, since any sign sent for one would be a step of scale / eps. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "isthmus/inner_loop.h"
#include "outer/parts/buckets.h"

namespace isthmus::outer {

/// v <- max(v / correction, floor * mean of its tensor's nonzero v); m <- 0 where v = 0.
void freeze_variance(InnerLoop& inner, double correction, double floor);
/// Contiguous runs of elements with a variance, in buckets like ddp's; buckets without any are left
/// out.
[[nodiscard]] std::vector<Bucket> active_buckets(InnerLoop& inner, std::size_t capacity);

[[nodiscard]] std::vector<std::size_t> sizes_of(const std::vector<Bucket>& buckets);

}  // namespace isthmus::outer
