// SPDX-License-Identifier: Apache-2.0
#include "app/train/hf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/base/followed_links.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace isthmus::app {

HfModel::HfModel(const ModelShape& shape)
    : layout(shape), values(static_cast<std::size_t>(layout.elements())) {}

std::span<float> HfModel::tensor(const TensorInfo& info) {
  return std::span(values).subspan(static_cast<std::size_t>(info.elements.begin),
                                   static_cast<std::size_t>(info.elements.size()));
}

std::vector<Parameter> HfModel::parameters() { return layout_parameters(layout, values); }

namespace {

ModelNotes notes_of(const Storage& storage, const std::filesystem::path& folder, std::int64_t vocab,
                    std::vector<std::string> not_read) {
  ModelNotes notes{.left_out = std::move(not_read),
                   .odd = ids_outside_vocabulary(storage, folder, vocab)};
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  if (followed_kind(storage, tokenizer) != FileKind::kFile) return notes;
  try {
    const std::int64_t ids = Tokenizer::open(storage, tokenizer).vocabulary();
    if (ids > vocab) {
      notes.odd.push_back(fmt::format(
          "{}: has ids up to {}, and the model's vocabulary has {} ids (0 to {}): the file "
          "is kept as it is, and texts with ids from {} on cannot be used",
          tokenizer.string(), ids - 1, vocab, vocab - 1, vocab));
    }
  } catch (const SystemError&) {  // of a kind that is not read here
  }
  return notes;
}

}  // namespace

ModelNotes model_notes(const Storage& storage, const std::filesystem::path& folder,
                       const ModelShape& shape, std::vector<std::string> not_read, bool bytes) {
  ModelNotes notes = notes_of(storage, folder, shape.vocab, std::move(not_read));
  notes.add(hf_companions(storage, shape, folder, bytes).left_out);
  return notes;
}

std::vector<std::string> add_tokenizer(HfCompanions& companions, const Storage& storage,
                                       const std::filesystem::path& tokenizer, std::int64_t vocab) {
  constexpr const char* kFile = "tokenizer.json";
  if (Tokenizer::open(storage, tokenizer).vocabulary() > vocab) return {};
  if (followed_kind(storage, tokenizer) != FileKind::kDirectory) {
    companions.files.emplace_back(kFile, read_text(storage, tokenizer));
    return {};
  }
  HfCompanions found = tokenizer_files_in(storage, tokenizer);
  for (auto& file : found.files) companions.files.push_back(std::move(file));
  return std::move(found.left_out);
}

void ModelNotes::add(const std::vector<std::string>& more) {
  left_out.insert(left_out.end(), more.begin(), more.end());
}

void ModelNotes::tell(Session& session) const {
  if (!left_out.empty()) {
    session.out.write(fmt::format("left out: {}\n", fmt::join(left_out, ", ")));
  }
  for (const std::string& note : odd) session.out.write(fmt::format("note: {}\n", note));
}

ModelNotes HfModel::write(Storage& storage, const std::filesystem::path& folder,
                          const std::filesystem::path& from, std::vector<std::string> not_read) {
  HfExport out;
  out.shape = layout.shape();
  out.from = from;
  for (const TensorInfo& info : layout.tensors()) {
    out.tensors.push_back({info.name, info.shape, tensor(info)});
  }
  const ModelFolderLock lock(folder);
  ModelNotes notes = notes_of(storage, from, layout.shape().vocab, std::move(not_read));
  notes.add(write_hf_folder(storage, folder, out));
  return notes;
}

void merge_adapters(HfModel& model, HfModel& adapters) {
  constexpr std::string_view kPrefix = "base_model.model.";
  const LoraShape& lora = adapters.layout.shape().lora;
  const double scale = lora.alpha / static_cast<double>(lora.rank);
  const std::vector<TensorInfo>& tensors = adapters.layout.tensors();
  for (std::size_t t = 0; t < tensors.size(); t += 2) {
    const std::string& name = tensors[t].name;
    const std::string product =
        name.substr(kPrefix.size(), name.find(".lora_A") - kPrefix.size()) + ".weight";
    const auto base = std::ranges::find(model.layout.tensors(), product, &TensorInfo::name);
    ISTHMUS_CHECK(base != model.layout.tensors().end(), t);
    const std::span<float> weight = model.tensor(*base);
    const float* const a = adapters.tensor(tensors[t]).data();
    const float* const b = adapters.tensor(tensors[t + 1]).data();
    const std::int64_t out = base->shape[0], in = base->shape[1];
    std::vector<double> row(static_cast<std::size_t>(in));
    for (std::int64_t i = 0; i < out; ++i) {
      std::ranges::fill(row, 0.0);
      for (std::int64_t k = 0; k < lora.rank; ++k) {
        const double factor = scale * b[i * lora.rank + k];
        for (std::int64_t j = 0; j < in; ++j) {
          row[static_cast<std::size_t>(j)] += factor * a[k * in + j];
        }
      }
      for (std::int64_t j = 0; j < in; ++j) {
        float& value = weight[static_cast<std::size_t>(i * in + j)];
        value = static_cast<float>(value + row[static_cast<std::size_t>(j)]);
      }
    }
  }
}

void check_model_target(const Storage& storage, const std::filesystem::path& folder,
                        ModelFiles files) {
  check_outside_runs(folder);
  if (followed_kind(storage, folder) == FileKind::kFile) {
    throw UsageError(fmt::format("'{}' is a file; name a folder to write", folder.string()));
  }
  files == ModelFiles::kWhole ? check_no_adapter(storage, folder)
                              : check_adapters_alone(storage, folder);
}

ModelFolderLock::ModelFolderLock(const std::filesystem::path& folder) {
  // Beside the folder, which appears whole: ".NAME.lock".
  const std::filesystem::path target = folder.has_filename() ? folder : folder.parent_path();
  const std::filesystem::path beside = target.has_parent_path() ? target.parent_path() : ".";
  const std::string file = fmt::format(".{}.lock", target.filename().string());
  try {
    lock_.emplace(beside, RunLock::Options{.file = file.c_str(),
                                           .remedy = "wait until it ends, or name another folder"});
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("'{}': a model is written there by one process at a time: {}",
                                  target.string(), error.what()));
  }
}

void read_newest(const std::function<std::vector<std::filesystem::path>()>& folders,
                 const std::function<void()>& read) {
  constexpr int kTries = 5;
  for (int tried = 1;; ++tried) {
    const std::vector<std::filesystem::path> there = folders();
    try {
      read();
      return;
    } catch (const SystemError& error) {
      const std::vector<std::filesystem::path> now = folders();
      if (now == there) throw;
      if (tried < kTries) continue;
      throw SystemError(fmt::format(
          "{}: its run goes on and removed it while it was read, as {} others before; raise "
          "ckpt.keep, or wait until the run ends ({})",
          there.front().string(), kTries - 1, error.what()));
    }
  }
}

}  // namespace isthmus::app
