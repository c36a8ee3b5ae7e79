// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model_source.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus {

const float* SourceWeights::tensor(std::size_t index) {
  const std::span<const float> values = source_.values(index);
  ISTHMUS_CHECK(
      static_cast<std::int64_t>(values.size()) == layout_.tensors()[index].elements.size(), index,
      values.size());
  return values.data();
}

const float* SourceWeights::rows(std::size_t index, std::int64_t first, std::int64_t count) {
  const std::int64_t columns = layout_.tensors()[index].shape.back();
  const std::span<const float> values = source_.rows(index, columns, first, count);
  ISTHMUS_CHECK(static_cast<std::int64_t>(values.size()) == count * columns, index, values.size());
  return values.data();
}

const float* SourceWeights::layer(std::int64_t layer) {
  const std::size_t first = layout_.first_tensor(layer);
  const CanonicalRange elements = layout_.layer_elements(layer);
  const float* const begin = tensor(first);
  bool together = true;
  for (std::size_t i = 1; i < layout_.tensors_per_layer(); ++i) {
    const std::int64_t offset = layout_.tensors()[first + i].elements.begin - elements.begin;
    together = together && tensor(first + i) == begin + offset;
  }
  if (together) return begin;
  copy_.resize(static_cast<std::size_t>(elements.size()));
  for (std::size_t i = 0; i < layout_.tensors_per_layer(); ++i) {
    const CanonicalRange range = layout_.tensors()[first + i].elements;
    std::copy_n(tensor(first + i), range.size(), copy_.data() + (range.begin - elements.begin));
  }
  return copy_.data();
}

}  // namespace isthmus
