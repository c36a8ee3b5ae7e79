// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/state/safetensors.h"
#include "inner/hf/byte_tokenizer.h"
#include "inner/hf/hf_weights.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Every file that a tokenizer of transformers may consist of.
constexpr std::array kTokenizerFiles = {
    "tokenizer.json",  "tokenizer_config.json",   "vocab.json",          "merges.txt",
    "tokenizer.model", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json"};

constexpr std::int64_t kByteTokens = 256;

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

NamedTexts configuration(const ModelShape& shape, const HfTokens& tokens) {
  return {{"config.json", hf_config_text(shape, tokens)},
          {"generation_config.json", hf_generation_config_text(tokens)}};
}

void add_byte_tokenizer(NamedTexts& files, const ModelShape& shape) {
  if (shape.vocab < kByteTokens) return;
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

namespace {

/// The weights last, so that a folder with new weights has everything that goes with them.
void write_files(Storage& storage, const std::filesystem::path& folder, const HfExport& model,
                 const NamedTexts& files) {
  for (const auto& [name, text] : files) write_atomically(storage, folder / name, text);
  std::vector<TensorToWrite> tensors;
  for (const HfTensor& tensor : model.tensors) {
    tensors.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  }
  write_safetensors(storage, folder / "model.safetensors", std::move(tensors));
}

void remove_tokenizer_not_in(const NamedTexts& files, Storage& storage,
                             const std::filesystem::path& folder) {
  for (const char* name : kTokenizerFiles) {
    const bool ours = std::any_of(files.begin(), files.end(),
                                  [name](const auto& file) { return file.first == name; });
    if (!ours && storage.kind(folder / name) != FileKind::kAbsent) storage.remove(folder / name);
  }
}

}  // namespace

void write_hf_folder(Storage& storage, const std::filesystem::path& given, const HfExport& model) {
  // "DIR/" has no file name to put a temporary beside.
  const std::filesystem::path folder = given.has_filename() ? given : given.parent_path();
  NamedTexts files = configuration(model.shape, model.tokens);
  if (model.byte_tokenizer) {
    add_byte_tokenizer(files, model.shape);
  } else if (model.tokenizer_from) {
    add_tokenizer_of(files, storage, *model.tokenizer_from);
  }
  if (storage.kind(folder) != FileKind::kAbsent) {
    storage.create_directories(folder);  // refuses what is no folder
    remove_tokenizer_not_in(files, storage, folder);
    write_files(storage, folder, model, files);
    return;
  }
  const std::filesystem::path temporary = temporary_beside(folder);
  storage.remove_all(temporary);  // of an export that was interrupted
  storage.create_directories(temporary);
  try {
    write_files(storage, temporary, model, files);
    storage.rename(temporary, folder);
  } catch (...) {
    try {
      storage.remove_all(temporary);
    } catch (const SystemError&) {
      // The first failure is the one to report.
    }
    throw;
  }
  storage.sync_directory(folder.parent_path());
}

}  // namespace isthmus
