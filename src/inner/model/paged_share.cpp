// SPDX-License-Identifier: Apache-2.0
#include "inner/model/paged_share.h"

namespace isthmus {
namespace {
void await(std::span<const float> values, StateUse) { state_await(values); }
}  // namespace

PagedShare::PagedShare(const ModelLayout& layout, const float* weights, bool own,
                       std::span<const float> gradients)
    : layout_(layout), weights_(weights), own_(own), gradients_(gradients) {}

void PagedShare::begin(bool backward) {
  if (current_ >= 0) each_of(current_, state_done);
  current_ = -1;
  backward_ = backward;
}

void PagedShare::each_of(std::int64_t layer, Hint hint) const {
  const CanonicalRange elements = layout_.layer_elements(layer);
  const auto size = static_cast<std::size_t>(elements.size());
  if (own_) hint({weights_ + elements.begin, size}, StateUse::kRead);
  if (backward_ && !gradients_.empty()) {
    hint(gradients_.subspan(static_cast<std::size_t>(elements.begin), size), StateUse::kWrite);
  }
}

const float* PagedShare::layer(std::int64_t layer) {
  if (layer != current_) {
    if (current_ >= 0) each_of(current_, state_done);
    current_ = layer;
    const std::int64_t next = backward_ ? layer - 1 : layer + 1;
    if (next >= 0 && next < layout_.shape().layers) each_of(next, state_needed);
    each_of(layer, await);
  }
  return weights_ + layout_.layer_elements(layer).begin;
}

}  // namespace isthmus
