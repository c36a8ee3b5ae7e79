// SPDX-License-Identifier: Apache-2.0
#include "inner/model/paged_weights.h"

#include <utility>

namespace isthmus {
namespace {
void await_weights(std::span<const float> values, StateUse) { state_await(values); }
}  // namespace

PagedWeights::PagedWeights(Weights<float>& weights, const ModelLayout& layout, Place place,
                           std::span<const float> gradients)
    : weights_(weights),
      layout_(layout),
      place_(std::move(place)),
      gradients_(gradients),
      // A source that makes its values up has them nowhere.
      in_files_(!weights.by_rows() && state_in_file(place_(layout.head()))) {}

void PagedWeights::each(std::size_t first, std::size_t end, bool values, bool gradients,
                        const Hint& hint) {
  if (first >= end) return;
  const std::vector<TensorInfo>& tensors = layout_.tensors();
  for (std::size_t i = first; i < end && values;) {
    // Neighbours as one: a layer's biases are less than a page.
    std::span<const float> stretch = place_(i);
    for (++i; i < end && place_(i).data() == stretch.data() + stretch.size(); ++i) {
      stretch = {stretch.data(), stretch.size() + place_(i).size()};
    }
    hint(stretch, StateUse::kRead);
  }
  if (gradients && !gradients_.empty()) {
    const auto begin = static_cast<std::size_t>(tensors[first].elements.begin);
    const auto size = static_cast<std::size_t>(tensors[end - 1].elements.end) - begin;
    hint(gradients_.subspan(begin, size), StateUse::kWrite);
  }
}

void PagedWeights::each_of_layer(std::int64_t layer, const Hint& hint) {
  const std::size_t first = layout_.first_tensor(layer);
  each(first, first + layout_.tensors_per_layer(), true, backward_, hint);
}

void PagedWeights::need(std::int64_t layer) { each_of_layer(layer, state_needed); }

void PagedWeights::leave_layer() {
  if (current_ >= 0) each_of_layer(current_, state_done);
  current_ = -1;
}

void PagedWeights::begin(PassPart part) {
  if (!in_files_) return;
  const std::int64_t layers = layout_.shape().layers;
  const std::size_t head = layout_.head();
  const std::size_t behind = layout_.first_tensor(layers - 1) + layout_.tensors_per_layer();
  switch (part) {
    case PassPart::kForward:
      backward_ = false;
      current_ = -1;
      need(0);
      break;
    case PassPart::kHead:  // the last layer is the first of the backward pass: it stays
      each(head, head + 1, false, true, await_weights);
      break;
    case PassPart::kBackward:
      each(head, head + 1, true, false, state_done);
      backward_ = true;
      current_ = -1;
      need(layers - 1);
      break;
    case PassPart::kEnd:
      leave_layer();
      each(0, layout_.first_tensor(0), true, true, state_done);
      each(behind, layout_.tensors().size(), true, true, state_done);
      backward_ = false;
      break;
  }
}

const float* PagedWeights::tensor(std::size_t index) {
  if (in_files_ && index == layout_.head() && current_ >= 0) {
    each(index, index + 1, true, false, await_weights);
  }
  return weights_.tensor(index);
}

const float* PagedWeights::layer(std::int64_t layer) {
  if (!in_files_ || layer == current_) return weights_.layer(layer);
  const std::int64_t layers = layout_.shape().layers;
  const std::size_t head = layout_.head();
  leave_layer();
  if (backward_ && layer + 1 == layers && !layout_.shape().tied) {
    // Only now, since its norm is taken after the head's part: the gradient is final.
    each(head, head + 1, false, true, state_done);
  }
  current_ = layer;
  const std::int64_t next = backward_ ? layer - 1 : layer + 1;
  if (next >= 0 && next < layers) {
    need(next);
  } else if (!backward_) {
    each(head, head + 1, true, true, state_needed);
  }
  each_of_layer(layer, await_weights);
  return weights_.layer(layer);
}

}  // namespace isthmus
