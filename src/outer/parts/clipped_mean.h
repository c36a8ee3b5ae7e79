// SPDX-License-Identifier: Apache-2.0
// Mean of encoded vectors with clipped norms: each vector is scaled so that its norm is at most the
// median of all norms (SparseLoCo's receivers). Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "isthmus/codec.h"

namespace isthmus::outer {

struct ClippedMean {
  std::vector<float> values;  // empty when no contribution decodes
  int used = 0;               // number of contributions in it
};

/// Plain mean over the contributions that decode to `n` values; others are left out. Contribution c
/// counts as values_c f_c, f_c = min(1, median / |values_c|); for an even number of norms the
/// median is the lower of the middle two, as in PyTorch.
/// Memory: one fp32 a value and one tile. DETERMINISM: norms in fp64 as `l2_norm` sums them; each
/// value is scaled (f_c rounded to fp32), added in order of the contributions, and the sum divided.
[[nodiscard]] ClippedMean clipped_mean(const Codec& codec, std::span<const Encoded> contributions,
                                       std::size_t n);

}  // namespace isthmus::outer
