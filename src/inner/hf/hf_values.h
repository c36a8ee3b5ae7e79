// SPDX-License-Identifier: Apache-2.0
// What the values of a model file must be before a model begins from them: finite, and of tensors
// that our models do not read, the ones that our models compute themselves. A file whose values say
// something else is refused, because it would train as another model without a word.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "core/state/safetensors.h"

namespace isthmus {

using PlacedTensor = std::pair<std::string, SafetensorsModel::Place>;

/// THROWS: SystemError naming file, tensor, place and value of the first that is NaN or infinite.
void check_finite(std::span<const PlacedTensor> tensors);

/// Causal masks and rotary tables that old versions of transformers stored beside the weights.
[[nodiscard]] bool is_hf_buffer(std::string_view name);
/// A buffer must be the mask of a causal model, or the frequencies of the rotary base that
/// config.json gives. THROWS: SystemError naming the tensor, its value and ours.
void check_hf_buffer(const Storage& storage, const std::filesystem::path& folder,
                     const PlacedTensor& buffer);

/// The head of a model whose configuration ties it to the embedding.
/// THROWS: SystemError unless both have the same values, naming the two ways out.
void check_tied_head(const PlacedTensor& head, const PlacedTensor& embedding);

}  // namespace isthmus
