// SPDX-License-Identifier: Apache-2.0
// hf_folders write DIR      writes gpt2/, llama/, qwen3/ and tied/ with known values under DIR
// hf_folders read DIR OUT   reads the model in DIR; OUT gets its values as raw float32, in order
// hf_folders copy DIR OUT   reads the model in DIR and writes it as a folder of ours
// Driven by check_with_transformers.py.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/base/storage.h"
#include "inner/hf/hf_weights.h"
#include "inner/model/model_layout.h"

namespace isthmus {
namespace {

// The parameters of a layout over one vector.
std::vector<Parameter> parameters_over(const ModelLayout& layout, std::span<float> values) {
  std::vector<Parameter> parameters;
  for (const TensorInfo& tensor : layout.tensors()) {
    parameters.push_back({tensor.name, tensor.layer, tensor.shape, tensor.elements,
                          values.subspan(static_cast<std::size_t>(tensor.elements.begin),
                                         static_cast<std::size_t>(tensor.elements.size())),
                          tensor.decay()});
  }
  return parameters;
}

void write_model(Storage& storage, const std::filesystem::path& folder, const ModelConfig& config) {
  const ModelLayout layout(model_shape(config, 16));
  std::vector<float> values(static_cast<std::size_t>(layout.elements()));
  const Rng rng{1, Stream::kTestData};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(0.05 * rng.normal(i));
  }
  HfExport model;
  model.shape = layout.shape();
  model.byte_tokenizer = config.vocab >= 256;
  for (const Parameter& parameter : parameters_over(layout, values)) {
    model.tensors.push_back({parameter.name, parameter.shape, parameter.values});
  }
  write_hf_folder(storage, folder, model);
  write_atomically(storage, folder / "values.f32", std::as_bytes(std::span(values)));
}

ModelConfig small(const char* arch, std::int64_t vocab) {
  ModelConfig config;
  config.arch = arch;
  config.layers = 2;
  config.d_model = 24;
  config.heads = 4;
  config.vocab = vocab;
  config.context = 32;
  return config;
}

void write_all(const std::filesystem::path& folder) {
  SystemStorage storage;
  ModelConfig gpt2 = small("gpt2", 257);
  gpt2.d_ff = 40;
  gpt2.tied = false;
  write_model(storage, folder / "gpt2", gpt2);
  write_model(storage, folder / "gpt2-tied", small("gpt2", 256));
  ModelConfig llama = small("llama", 256);
  llama.kv_heads = 2;
  llama.tied = false;
  llama.rope_theta = 5000;
  llama.norm_eps = 1e-6;
  write_model(storage, folder / "llama", llama);
  llama.tied = true;
  llama.head_dim = 10;
  write_model(storage, folder / "llama-tied", llama);
  llama.qk_norm = true;
  write_model(storage, folder / "qwen3", llama);
}

void read_one(const std::filesystem::path& folder, const std::filesystem::path& out) {
  SystemStorage storage;
  const HfConfig config = read_hf_config(storage, folder);
  const ModelLayout layout(model_shape(config.model, config.model.context));
  std::vector<float> values(static_cast<std::size_t>(layout.elements()));
  load_hf_weights(storage, folder, parameters_over(layout, values));
  write_atomically(storage, out, std::as_bytes(std::span(values)));
  for (const TensorInfo& tensor : layout.tensors()) std::printf("%s\n", tensor.name.c_str());
}

/// As `isthmus import` does.
void copy_one(const std::filesystem::path& folder, const std::filesystem::path& out) {
  SystemStorage storage;
  const HfConfig config = read_hf_config(storage, folder);
  const ModelLayout layout(model_shape(config.model, config.model.context));
  std::vector<float> values(static_cast<std::size_t>(layout.elements()));
  load_hf_weights(storage, folder, parameters_over(layout, values));
  HfExport model;
  model.shape = layout.shape();
  model.from = folder;
  for (const Parameter& parameter : parameters_over(layout, values)) {
    model.tensors.push_back({parameter.name, parameter.shape, parameter.values});
  }
  write_hf_folder(storage, out, model);
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 2 && arguments[0] == "write") {
      isthmus::write_all(arguments[1]);
    } else if (arguments.size() == 3 && arguments[0] == "read") {
      isthmus::read_one(arguments[1], arguments[2]);
    } else if (arguments.size() == 3 && arguments[0] == "copy") {
      isthmus::copy_one(arguments[1], arguments[2]);
    } else {
      std::fprintf(stderr, "usage: hf_folders write DIR | read DIR OUT | copy DIR OUT\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
