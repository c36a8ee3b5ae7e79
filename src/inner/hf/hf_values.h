// SPDX-License-Identifier: Apache-2.0
// Checks of the values of a model file: they must be finite, and tensors that our models do not
// read must equal the ones that our models compute. A file with other values is an error, because
// it would silently train as another model.
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

/// THROWS: SystemError naming file, tensor, index and value of the first NaN or infinity.
void check_finite(std::span<const PlacedTensor> tensors);

/// Causal masks and rotary tables that old versions of transformers stored beside the weights.
[[nodiscard]] bool is_hf_buffer(std::string_view name);
/// Checks that a buffer is the mask of a causal model, or the frequencies of the rotary base in
/// config.json. THROWS: SystemError naming the tensor, its value and the expected one.
void check_hf_buffer(const Storage& storage, const std::filesystem::path& folder,
                     const PlacedTensor& buffer);

/// Checks the head of a model whose configuration ties it to the embedding. THROWS: SystemError
/// unless both have the same values, naming the two remedies.
void check_tied_head(const PlacedTensor& head, const PlacedTensor& embedding);

}  // namespace isthmus
