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

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

NamedTexts configuration(const ModelShape& shape, const HfTokens& tokens) {
  return {{"config.json", hf_config_text(shape, tokens)},
          {"generation_config.json", hf_generation_config_text(tokens)}};
}

void add_byte_tokenizer(NamedTexts& files, const ModelShape& shape) {
  if (shape.vocab < kBytes) return;
  files.emplace_back("tokenizer.json", byte_tokenizer_text(shape.vocab));
  files.emplace_back("tokenizer_config.json",
                     byte_tokenizer_config_text(shape.vocab, shape.positions));
}

void add_tokenizer_of(NamedTexts& files, const Storage& storage,
                      const std::filesystem::path& folder) {
  for (const char* name : kTokenizerFiles) {
    if (storage.kind(folder / name) == FileKind::kAbsent) continue;
    files.emplace_back(name, read_text(storage, folder / name));
  }
}

}  // namespace

NamedTexts hf_companions(const Storage& storage, const ModelShape& shape,
                         const std::filesystem::path& init, bool bytes) {
  const bool from_folder = !init.empty();
  NamedTexts files =
      configuration(shape, from_folder ? read_hf_config(storage, init).tokens : HfTokens{});
  if (from_folder) {
    add_tokenizer_of(files, storage, init);
  } else if (bytes) {
    add_byte_tokenizer(files, shape);
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
  NamedTexts files = configuration(model.shape, model.tokens);
  if (model.byte_tokenizer) {
    add_byte_tokenizer(files, model.shape);
  } else if (model.tokenizer_from) {
    add_tokenizer_of(files, storage, *model.tokenizer_from);
  }
  for (const auto& [name, text] : files) write_atomically(storage, folder / name, text);
}

}  // namespace isthmus
