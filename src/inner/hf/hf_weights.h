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

/// Fills the parameters' values from FOLDER/model.safetensors or its shards (F32, F16, BF16).
/// Names without the leading "transformer." or "model." (saved from the bare model) are understood,
/// and so are those with the prefixes of torch.compile and of data-parallel wrappers
/// ("_orig_mod.", "module."). What is not read is checked to say what our models compute: causal
/// masks, rotary frequencies, and the copy of a tied head.
/// THROWS: SystemError when a file is unusable, a value is not finite, a tensor that is not read
/// says something else, or one error that lists every missing, unknown and misshaped tensor; the
/// values are then unchanged.
void load_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                     std::span<const Parameter> parameters);
/// The same checks, which read every value once; the parameters' values are not touched.
void check_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                      std::span<const Parameter> parameters);

/// Called with a parameter's number and its values, which are good until it returns.
using TakeValues = std::function<void(std::size_t parameter, std::span<const float> values)>;
/// Whether every value is still to be read once before the first one is handed out.
enum class HfCheck { kValues, kNamesAlone };
/// The same checks; then each parameter's values are handed to `take`, one tensor at a time, and
/// the parameters' own are not touched. The file's pages are left once they have been handed out.
void read_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                     std::span<const Parameter> parameters, const TakeValues& take,
                     HfCheck check = HfCheck::kValues);

struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct HfExport {
  ModelShape shape;
  std::vector<HfTensor> tensors;  // in canonical order
  /// Write the byte-level tokenizer (a model of bytes, with at least 256 ids).
  bool byte_tokenizer = false;
  /// Keep settings and companions of the folder that the model comes from, where there is one.
  std::filesystem::path from;
};

/// Writes a folder that transformers loads: config.json, generation_config.json, model.safetensors
/// (fp32), companions. A new folder appears whole or not at all. In an existing one the files of
/// these names are replaced, each atomically and the weights last, and the companions of another
/// model are removed. RETURNS: what of `from` is left out. THROWS: SystemError, ConfigError.
std::vector<std::string> write_hf_folder(Storage& storage, const std::filesystem::path& folder,
                                         const HfExport& model);

}  // namespace isthmus
