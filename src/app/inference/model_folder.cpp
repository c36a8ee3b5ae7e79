// SPDX-License-Identifier: Apache-2.0
#include "app/inference/model_folder.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "core/base/followed_links.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "data/documents.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"
#include "text/byte_level_files.h"
#include "text/end_of_text.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 256;

fs::path tokenizer_of(const Storage& storage, const fs::path& folder, const std::string& given) {
  if (!given.empty()) return tokenizer_file(storage, given);
  const fs::path file = folder / "tokenizer.json";
  if (followed_kind(storage, file) == FileKind::kFile) return file;
  throw ConfigError(
      fmt::format("{}: has no tokenizer.json; give --tokenizer DIR, or --tokenizer bytes for a "
                  "model whose ids are bytes",
                  folder.string()));
}

Tokenizer open_tokenizer(const Storage& storage, const fs::path& file, std::int64_t vocab) {
  if (file != "bytes") return Tokenizer::open(storage, file);
  if (vocab < kBytes) {
    throw ConfigError(fmt::format(
        "--tokenizer bytes: the model has {} ids, and bytes take 256: give its own tokenizer",
        vocab));
  }
  return {byte_tokenizer_text(vocab), "the tokenizer of bytes"};
}

/// THROWS: ConfigError where an id of `given` is another token in the tokenizer of the folder.
void check_given_tokenizer(const Storage& storage, const fs::path& folder, const Tokenizer& given,
                           const std::string& name, std::int64_t vocab) {
  const fs::path own = folder / "tokenizer.json";
  if (followed_kind(storage, own) != FileKind::kFile) return;
  const std::string unlike = unlike_token(given, Tokenizer::open(storage, own), vocab);
  if (unlike.empty()) return;
  throw ConfigError(fmt::format(
      "--tokenizer {}: does not belong to the model of {}: {}; leave --tokenizer out, or take "
      "tokenizer.json out of that folder if it is not the model's",
      name, folder.string(), unlike));
}

}  // namespace

fs::path weights_folder(const Storage& storage, const fs::path& from) {
  const bool is_model = followed_kind(storage, from / "config.json") == FileKind::kFile &&
                        storage.kind(from / "state.json") != FileKind::kFile;
  const fs::path folder = is_model ? from : find_checkpoint(storage, from);
  if (storage.kind(folder / kAdapterConfig) == FileKind::kAbsent) return folder;
  throw ConfigError(fmt::format(
      "{}: holds adapters and no whole model ([lora]); merge them first: isthmus export {} --to hf "
      "DIR",
      folder.string(), from.string()));
}

std::string ModelFolder::description() const {
  return fmt::format("{}, {} parameters",
                     model.layout.shape().architecture == Architecture::kGpt2 ? "gpt2" : "llama",
                     with_commas(model.layout.elements()));
}

namespace {

ModelFolder opened_folder(const Storage& storage, const fs::path& folder,
                          const std::string& tokenizer) {
  const HfConfig config = read_hf_config(storage, folder);
  const fs::path file =
      tokenizer == "bytes" ? fs::path(tokenizer) : tokenizer_of(storage, folder, tokenizer);
  ModelFolder opened{folder, HfModel(model_shape(config.model, config.model.context)),
                     open_tokenizer(storage, file, config.model.vocab), file.string()};
  if (opened.tokenizer.vocabulary() > config.model.vocab) {
    throw ConfigError(fmt::format(
        "{}: the tokenizer has ids up to {}, and the model of {} knows {}: it does not belong to "
        "the model; give --tokenizer DIR",
        opened.tokenizer_name, opened.tokenizer.vocabulary() - 1, folder.string(),
        config.model.vocab));
  }
  if (!tokenizer.empty()) {
    check_given_tokenizer(storage, folder, opened.tokenizer, tokenizer, config.model.vocab);
  }
  load_hf_weights(storage, folder, opened.model.parameters());
  return opened;
}

}  // namespace

ModelFolder open_model_folder(const Storage& storage, const fs::path& from,
                              const std::string& tokenizer) {
  std::optional<ModelFolder> opened;
  fs::path folder;
  read_newest(
      [&] {
        folder = weights_folder(storage, from);
        return std::vector{folder};
      },
      [&] { opened.emplace(opened_folder(storage, folder, tokenizer)); });
  return *std::move(opened);
}

int inference_threads(int wanted) {
  return wanted > 0 ? wanted : static_cast<int>(kernels::usable_cores().size());
}

void check_on_cpu(const std::string& device, std::string_view command) {
  if (device == "cpu") return;
  throw ConfigError(fmt::format("--device {}: `isthmus {}` computes on the CPU; leave --device out",
                                device, command));
}

}  // namespace isthmus::app
