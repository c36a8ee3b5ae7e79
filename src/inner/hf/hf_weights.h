// SPDX-License-Identifier: Apache-2.0
// Weights of Hugging Face models, in and out. Our tensors have their names, shapes and storage
// order, so nothing is transposed or permuted. Blocking; one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "inner/model/model_shape.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// Fills the parameters' values from FOLDER/model.safetensors or its shards (F32, F16, BF16). Names
/// may lack the leading "transformer." or "model." (saved from the bare model), or have the
/// prefixes of torch.compile and of data-parallel wrappers ("_orig_mod.", "module."). Tensors that
/// are not read (causal masks, rotary frequencies, the copy of a tied head) must equal the ones
/// that our models compute. THROWS: SystemError when a file is unusable, a value is not finite, or
/// an unread tensor differs; or one error that lists every missing, unknown and misshaped tensor.
/// The values are then unchanged.
/// RETURNS: the tensors that are not read, those of all layers as one: "12 tensors h.*.attn.bias".
std::vector<std::string> load_hf_weights(const Storage& storage,
                                         const std::filesystem::path& folder,
                                         std::span<const Parameter> parameters);
/// The same checks, which read every value once; the parameters' values do not change.
std::vector<std::string> check_hf_weights(const Storage& storage,
                                          const std::filesystem::path& folder,
                                          std::span<const Parameter> parameters);

/// Called with a parameter's index and its values from `first` on, which are valid until it
/// returns: whole tiles (isthmus/codec.h), or up to the tensor's end.
using TakeValues =
    std::function<void(std::size_t parameter, std::int64_t first, std::span<const float> values)>;
/// Whether every value is read once before the first one is handed out.
enum class HfCheck { kValues, kNamesAlone };
/// The same checks; then calls `take` with each parameter's values in order, a few megabytes at a
/// time: a vocabulary's table may have gigabytes. The parameters' own values do not change. Pages
/// of the file are released after their values have been handed out. RETURNS: the tensors that are
/// not read.
std::vector<std::string> read_hf_weights(const Storage& storage,
                                         const std::filesystem::path& folder,
                                         std::span<const Parameter> parameters,
                                         const TakeValues& take, HfCheck check = HfCheck::kValues);

struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct HfExport {
  ModelShape shape;
  std::vector<HfTensor> tensors;  // in canonical order
  /// Write the byte-level tokenizer (for a model of bytes, with at least 256 ids).
  bool byte_tokenizer = false;
  /// Keep settings and companions of the folder that the model was initialised from, if any.
  std::filesystem::path from;
};

/// Writes a folder that transformers loads: config.json, generation_config.json, model.safetensors
/// (fp32), companions. A new folder appears whole or not at all. In an existing folder the files of
/// these names are replaced, each atomically and the weights last, and companions of another model
/// are removed. RETURNS: names in `from` that are left out. THROWS: SystemError, ConfigError.
std::vector<std::string> write_hf_folder(Storage& storage, const std::filesystem::path& folder,
                                         const HfExport& model);

}  // namespace isthmus
