// SPDX-License-Identifier: Apache-2.0
#include "outer/fragment_state.h"

#include <algorithm>
#include <utility>

namespace isthmus::outer {

FragmentState::FragmentState(Fragment fragment, std::span<const Parameter> parameters,
                             bool with_momentum)
    : fragment_(std::move(fragment)) {
  for (const std::size_t i : fragment_.parameters) {
    local_.append(parameters[i].values);
  }
  anchor_.resize(local_.size());
  local_.read(0, anchor_);
  momentum_.resize(with_momentum ? anchor_.size() : 0);
}

Encoded FragmentState::encode_outer_gradient(const Codec& codec, const EncodeKey& key) const {
  const auto fill = [&](std::size_t begin, std::span<float> tile) {
    local_.read(begin, tile);
    const float* const anchor = anchor_.data() + begin;
    for (std::size_t i = 0; i < tile.size(); ++i) {
      tile[i] = anchor[i] - tile[i];
    }
  };
  return encode_tiles(codec, anchor_.size(), fill, key);
}

void FragmentState::step(const kernels::OuterStep& optimizer, std::span<const float> mean) {
  kernels::outer_step(optimizer, anchor_, mean, momentum_);
}

void FragmentState::merge(float alpha) {
  if (alpha == 1) {
    return;
  }
  const float share = 1 - alpha;
  local_.for_each([&](std::size_t begin, std::span<float> local) {
    const std::span<const float> anchor = std::span(anchor_).subspan(begin, local.size());
    if (alpha == 0) {
      std::ranges::copy(anchor, local.begin());
      return;
    }
    for (std::size_t i = 0; i < local.size(); ++i) {
      local[i] = alpha * local[i] + share * anchor[i];
    }
  });
}

}  // namespace isthmus::outer
