// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "core/safetensors.h"
#include "inner/hf/byte_tokenizer.h"
#include "inner/hf/hf_weights.h"

namespace isthmus {
namespace {

// Every file that a tokenizer of transformers may consist of.
constexpr std::array kTokenizerFiles = {
    "tokenizer.json",  "tokenizer_config.json",   "vocab.json",          "merges.txt",
    "tokenizer.model", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json"};

constexpr std::int64_t kBytes = 256;

}  // namespace

std::vector<std::pair<std::string, std::string>> hf_small_files(const ModelShape& shape,
                                                                const HfTokens& tokens,
                                                                bool byte_tokenizer) {
  std::vector<std::pair<std::string, std::string>> files = {
      {"config.json", hf_config_text(shape, tokens)},
      {"generation_config.json", hf_generation_config_text(tokens)}};
  if (byte_tokenizer && shape.vocab >= kBytes) {
    files.emplace_back("tokenizer.json", byte_tokenizer_text(shape.vocab));
    files.emplace_back("tokenizer_config.json",
                       byte_tokenizer_config_text(shape.vocab, shape.positions));
  }
  return files;
}

void write_hf_folder(Storage& storage, const std::filesystem::path& folder, const HfExport& model) {
  storage.create_directories(folder);
  std::vector<TensorToWrite> tensors;
  for (const HfTensor& tensor : model.tensors) {
    tensors.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  }
  write_safetensors(storage, folder / "model.safetensors", std::move(tensors));
  for (const auto& [name, text] : hf_small_files(model.shape, model.tokens, model.byte_tokenizer)) {
    write_atomically(storage, folder / name, text);
  }
  if (model.byte_tokenizer || !model.tokenizer_from) return;
  for (const char* name : kTokenizerFiles) {
    if (storage.kind(*model.tokenizer_from / name) == FileKind::kAbsent) continue;
    write_atomically(storage, folder / name, storage.read(*model.tokenizer_from / name));
  }
}

}  // namespace isthmus
