// SPDX-License-Identifier: Apache-2.0
// The fragment table (arXiv:2501.18512 §2.2, Fig. 2): which tensors are synced together.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/parts/start_check.h"

namespace isthmus {
namespace {

int layer_count(std::span<const Parameter> parameters) {
  int layers = 0;
  for (const Parameter& parameter : parameters) {
    layers = std::max(layers, parameter.layer + 1);
  }
  return layers;
}

/// Whole layers, largest first, each to the lightest fragment so far; ties go to the lower number,
/// so the table is a pure function of the sizes.
std::vector<int> balanced_fragment_of_layer(std::span<const Parameter> parameters, int layers,
                                            int fragments) {
  std::vector<std::int64_t> size(static_cast<std::size_t>(layers));
  for (const Parameter& parameter : parameters) {
    if (parameter.layer != kNoLayer) {
      size[static_cast<std::size_t>(parameter.layer)] += parameter.elements.size();
    }
  }
  std::vector<std::size_t> by_size(size.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size,
                           [&](std::size_t a, std::size_t b) { return size[a] > size[b]; });
  std::vector<std::int64_t> load(static_cast<std::size_t>(fragments));
  std::vector<int> fragment_of(size.size());
  for (const std::size_t layer : by_size) {
    const auto lightest = std::ranges::min_element(load);
    *lightest += size[layer];
    fragment_of[layer] = static_cast<int>(lightest - load.begin());
  }
  return fragment_of;
}

std::vector<int> fragment_of_each_layer(std::span<const Parameter> parameters, int layers,
                                        int fragments, FragmentPattern pattern) {
  if (pattern == FragmentPattern::kBalanced) {
    return balanced_fragment_of_layer(parameters, layers, fragments);
  }
  std::vector<int> fragment_of(static_cast<std::size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    fragment_of[static_cast<std::size_t>(layer)] =
        pattern == FragmentPattern::kStrided
            ? layer % fragments
            : static_cast<int>(static_cast<std::int64_t>(layer) * fragments / layers);
  }
  return fragment_of;
}

}  // namespace

std::vector<Fragment> make_fragments(std::span<const Parameter> parameters, int layer_fragments,
                                     FragmentPattern pattern, bool embeddings_own) {
  for (std::size_t i = 0; i < parameters.size(); ++i) outer::check_layer(i, parameters[i]);
  const int layers = layer_count(parameters);
  if (layer_fragments < 1) {
    throw ConfigError(fmt::format(
        "outer.fragments = {}: must be >= 1 (groups of layers synced together)", layer_fragments));
  }
  if (layer_fragments > std::max(layers, 1)) {
    throw ConfigError(fmt::format(
        "outer.fragments = {}: must not exceed the model's {} layers (a fragment is whole layers)",
        layer_fragments, layers));
  }
  const bool split_layerless = layers > 0 && (layer_fragments > 1 || embeddings_own);
  const std::vector<int> fragment_of =
      fragment_of_each_layer(parameters, layers, layer_fragments, pattern);

  std::vector<Fragment> table(static_cast<std::size_t>(layer_fragments) + 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const int layer = parameters[i].layer;
    const int layerless = split_layerless ? layer_fragments : 0;
    const int id = layer == kNoLayer ? layerless : fragment_of[static_cast<std::size_t>(layer)];
    Fragment& fragment = table[static_cast<std::size_t>(id)];
    fragment.parameters.push_back(i);
    fragment.elements += parameters[i].elements.size();
  }
  if (table.back().parameters.empty()) {
    table.pop_back();
  }
  for (std::size_t id = 0; id < table.size(); ++id) {
    table[id].id = FragmentId(static_cast<int>(id));
    if (table[id].parameters.empty()) {
      throw ConfigError(fmt::format(
          "outer.fragments = {}: fragment {} has no parameters, since the inner loop names no "
          "parameter of its layers; use fewer fragments or number the layers from 0 without gaps",
          layer_fragments, id));
    }
  }
  return table;
}

}  // namespace isthmus
