// SPDX-License-Identifier: Apache-2.0
#include "inner/model/init.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/state/state_memory.h"

namespace isthmus {
namespace {
constexpr std::int64_t kBlock = 4096;
}  // namespace

void initialize(kernels::ThreadTeam& team, const ModelLayout& layout, std::uint64_t seed,
                std::span<float> values) {
  ISTHMUS_CHECK(static_cast<std::int64_t>(values.size()) == layout.elements(), values.size());
  const Rng rng{seed, Stream::kInit};
  const double residual =
      kInitDeviation / std::sqrt(2.0 * static_cast<double>(layout.shape().layers));
  for (const TensorInfo& tensor : layout.tensors()) {
    float* const first = values.data() + tensor.elements.begin;
    const std::int64_t size = tensor.elements.size();
    if (tensor.init == TensorInit::kZero || tensor.init == TensorInit::kOne) {
      std::fill_n(first, size, tensor.init == TensorInit::kOne ? 1.0f : 0.0f);
      continue;
    }
    if (tensor.init == TensorInit::kUniform) {
      const double bound = 1 / std::sqrt(static_cast<double>(tensor.shape[1]));
      for (std::int64_t i = 0; i < size; ++i) {
        const auto element = static_cast<std::uint64_t>(tensor.elements.begin + i);
        first[i] = static_cast<float>(bound * (2 * rng.uniform(element) - 1));
      }
      continue;
    }
    const double deviation = tensor.init == TensorInit::kResidual ? residual : kInitDeviation;
    team.for_blocks(size, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto element = static_cast<std::uint64_t>(tensor.elements.begin + i);
        first[i] = static_cast<float>(deviation * rng.normal(element));
      }
    });
    state_done({first, static_cast<std::size_t>(size)}, StateUse::kWrite);
  }
}

}  // namespace isthmus
