// SPDX-License-Identifier: Apache-2.0
// Weights of Hugging Face models, in and out. Our tensors have their names, shapes and storage
// order, so nothing is transposed or permuted. Blocking; one thread.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// Fills the parameters' values from FOLDER/model.safetensors or its shards (F32, F16, BF16).
/// Names without the leading "transformer." or "model." (saved from the bare model) are understood;
/// buffers that are no weights (attn.bias, attn.masked_bias, rotary_emb.inv_freq) and the copy of a
/// tied head are skipped.
/// THROWS: SystemError when a file is unusable, or one error that lists every missing, unknown and
/// misshaped tensor; the values are then unchanged.
void load_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                     std::span<const Parameter> parameters);
/// The same checks, from the files' headers alone; the parameters' values are not touched.
void check_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                      std::span<const Parameter> parameters);

struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct HfExport {
  ModelShape shape;
  std::vector<HfTensor> tensors;  // in canonical order
  HfTokens tokens;
  /// Write the byte-level tokenizer (a model of bytes, with at least 256 ids).
  bool byte_tokenizer = false;
  /// Otherwise copy the tokenizer files of this folder, when given.
  std::optional<std::filesystem::path> tokenizer_from;
};

/// Writes a folder that transformers loads: config.json, generation_config.json, model.safetensors
/// (fp32), tokenizer files. A new folder appears whole or not at all. In an existing one the files
/// of these names are replaced, each atomically and the weights last, and tokenizer files that this
/// model does not have are removed. THROWS: SystemError.
void write_hf_folder(Storage& storage, const std::filesystem::path& folder, const HfExport& model);

/// Name and text of every file of such a folder but the weights; a checkpoint with them is such a
/// folder too. A model that began from the folder `init` keeps its special tokens and tokenizer
/// files; otherwise `bytes` asks for the byte-level tokenizer (written when there are at least 256
/// ids). THROWS: SystemError or ConfigError when `init` is given and unreadable.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> hf_companions(
    const Storage& storage, const ModelShape& shape, const std::filesystem::path& init, bool bytes);

}  // namespace isthmus
