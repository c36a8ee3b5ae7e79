// SPDX-License-Identifier: Apache-2.0
#include "inner/model/key_value_cache.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/bf16.h"

namespace isthmus {
namespace {

/// Eight sums side by side, so that the compiler makes vectors of them.
float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) lanes[0] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

/// scores (n,) become exp(scores - largest). RETURNS: their sum.
float exponentials(float* scores, std::int64_t n) {
  const float top = *std::max_element(scores, scores + n);
  float total = 0;
  for (std::int64_t s = 0; s < n; ++s) {
    scores[s] = std::exp(scores[s] - top);
    total += scores[s];
  }
  return total;
}

template <typename To, typename From>
void convert(const From* from, std::int64_t n, To* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = To(kernels::RealOf<To>(from[i]));
}

std::size_t cached_values(const ModelShape& s, std::int64_t positions) {
  return static_cast<std::size_t>(s.layers * positions * s.key_width());
}

}  // namespace

KeyValueCache::KeyValueCache(const ModelShape& shape, std::int64_t positions)
    : positions_(positions),
      width_(shape.key_width()),
      keys_(cached_values(shape, positions)),
      values_(cached_values(shape, positions)) {}

template <typename T>
void KeyValueCache::attend(const Pass& pass, const kernels::AttentionShape& shape,
                           const kernels::HeadsView<const T>& q,
                           const kernels::HeadsView<const T>& k,
                           const kernels::HeadsView<const T>& v, const kernels::HeadsView<T>& out) {
  ISTHMUS_CHECK(pass.sequences == 1 && pass.before == seen_, pass.sequences, pass.before, seen_);
  ISTHMUS_CHECK(seen_ + pass.length <= positions_, seen_, pass.length, positions_);
  const std::int64_t size = shape.head_dim, shared = shape.q_heads / shape.kv_heads;
  const auto scale = static_cast<float>(shape.scale), cap = static_cast<float>(shape.cap);
  float* const keys = keys_.data() + pass.layer * positions_ * width_;
  float* const values = values_.data() + pass.layer * positions_ * width_;
  for (std::int64_t row = 0; row < pass.length; ++row) {
    for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
      const std::int64_t place = (seen_ + row) * width_ + h * size;
      convert(k.at(0, row, h), size, keys + place);
      convert(v.at(0, row, h), size, values + place);
    }
  }
  pass.team.for_each(pass.length * shape.q_heads, [&](std::int64_t index, int member) {
    const std::int64_t row = index / shape.q_heads, h = index % shape.q_heads;
    const std::int64_t last = seen_ + row, first = shape.first_key(0, last);
    const std::int64_t column = h / shared * size;
    float* const query =
        pass.team.scratch<float>(kernels::Scratch::kOperation, 2 * size + positions_, member);
    float* const sum = query + size;
    float* const scores = sum + size;  // of the keys from `first` on
    convert(q.at(0, row, h), size, query);
    for (std::int64_t s = first; s <= last; ++s) {
      const float score = scale * dot(query, keys + s * width_ + column, size);
      scores[s - first] = cap > 0 ? cap * std::tanh(score / cap) : score;
    }
    const float total = exponentials(scores, last - first + 1);
    std::fill_n(sum, size, 0.0F);
    for (std::int64_t s = first; s <= last; ++s) {
      const float weight = scores[s - first] / total;
      const float* const value = values + s * width_ + column;
      for (std::int64_t i = 0; i < size; ++i) sum[i] += weight * value[i];
    }
    convert(sum, size, out.at(0, row, h));
  });
}

template void KeyValueCache::attend(const Pass&, const kernels::AttentionShape&,
                                    const kernels::HeadsView<const float>&,
                                    const kernels::HeadsView<const float>&,
                                    const kernels::HeadsView<const float>&,
                                    const kernels::HeadsView<float>&);
template void KeyValueCache::attend(const Pass&, const kernels::AttentionShape&,
                                    const kernels::HeadsView<const double>&,
                                    const kernels::HeadsView<const double>&,
                                    const kernels::HeadsView<const double>&,
                                    const kernels::HeadsView<double>&);
template void KeyValueCache::attend(const Pass&, const kernels::AttentionShape&,
                                    const kernels::HeadsView<const kernels::Bf16>&,
                                    const kernels::HeadsView<const kernels::Bf16>&,
                                    const kernels::HeadsView<const kernels::Bf16>&,
                                    const kernels::HeadsView<kernels::Bf16>&);

}  // namespace isthmus
