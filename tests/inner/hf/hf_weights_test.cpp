// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/storage_faults.h"
#include "core/state/safetensors.h"
#include "core/temporary_directory.h"
#include "inner/model/model_layout.h"
#include "isthmus/errors.h"
#include "test_paths.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A model's parameters, all values 0 until loaded.
struct Model {
  explicit Model(const HfConfig& config)
      : layout(model_shape(config.model, config.model.context)),
        values(static_cast<std::size_t>(layout.elements())) {
    for (const TensorInfo& tensor : layout.tensors()) {
      parameters.push_back(
          {tensor.name, tensor.layer, tensor.shape, tensor.elements,
           std::span(values).subspan(static_cast<std::size_t>(tensor.elements.begin),
                                     static_cast<std::size_t>(tensor.elements.size())),
           tensor.decay()});
    }
  }
  [[nodiscard]] HfExport to_export() const {
    HfExport model;
    model.shape = layout.shape();
    for (const Parameter& parameter : parameters) {
      model.tensors.push_back({parameter.name, parameter.shape, parameter.values});
    }
    return model;
  }
  ModelLayout layout;
  std::vector<float> values;
  std::vector<Parameter> parameters;
};

const std::filesystem::path kGolden =
    std::filesystem::path(testing_support::kTestsFolder) / "inner/hf/data";

class HfWeights : public testing::Test {
 protected:
  // The golden GPT-2's tensors, to be changed and written again.
  std::vector<TensorToWrite> golden_tensors() {
    golden_.emplace(Safetensors::open(storage_, kGolden / "gpt2/model.safetensors"));
    std::vector<TensorToWrite> tensors;
    for (const SafetensorsEntry& entry : golden_->entries()) {
      tensors.push_back({entry.name, entry.dtype, entry.shape, golden_->bytes(entry)});
    }
    return tensors;
  }
  std::string load_error(const std::vector<TensorToWrite>& tensors) {
    write_safetensors(storage_, directory_ / "model.safetensors", tensors);
    return message_of<SystemError>(
        [&] { load_hf_weights(storage_, directory_.path(), model_.parameters); });
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
  std::optional<Safetensors> golden_;
  Model model_{read_hf_config(storage_, kGolden / "gpt2")};
};

// data/ was saved by transformers 5.23: check_with_transformers.py --golden tests/inner/hf/data
TEST_F(HfWeights, WriteTheBytesThatTransformersWrote) {
  for (const char* name : {"gpt2", "llama"}) {
    Model model(read_hf_config(storage_, kGolden / name));
    load_hf_weights(storage_, kGolden / name, model.parameters);
    write_hf_folder(storage_, directory_ / name, model.to_export());
    EXPECT_EQ(storage_.read(directory_ / name / "model.safetensors"),
              storage_.read(kGolden / name / "model.safetensors"))
        << name;
    const ModelConfig ours = read_hf_config(storage_, directory_ / name).model;
    const ModelConfig theirs = read_hf_config(storage_, kGolden / name).model;
    EXPECT_EQ(ours.d_ff, theirs.d_ff);
    EXPECT_EQ(ours.context, theirs.context);
    EXPECT_EQ(ours.tied, theirs.tied);
    EXPECT_EQ(ours.norm_eps, theirs.norm_eps);
  }
}

TEST_F(HfWeights, AcceptBareNamesAndSkipBuffersAndATiedHead) {
  std::vector<TensorToWrite> tensors = golden_tensors();
  const std::vector<float> mask(16, 1);
  for (TensorToWrite& tensor : tensors) tensor.name = tensor.name.substr(12);
  tensors.push_back({"h.0.attn.bias", DType::kF32, {1, 1, 4, 4}, std::as_bytes(std::span(mask))});
  tensors.push_back(
      {"h.0.attn.masked_bias", DType::kF32, {}, std::as_bytes(std::span(mask).first(1))});
  tensors.push_back({"lm_head.weight", DType::kF32, {4, 4}, std::as_bytes(std::span(mask))});
  EXPECT_EQ(load_error(tensors), "");
  Model whole(read_hf_config(storage_, kGolden / "gpt2"));
  load_hf_weights(storage_, kGolden / "gpt2", whole.parameters);
  EXPECT_EQ(model_.values, whole.values);
}

TEST_F(HfWeights, ListEveryTensorThatDoesNotFitAndChangeNothing) {
  std::vector<TensorToWrite> tensors = golden_tensors();
  std::erase_if(tensors, [](const auto& tensor) { return tensor.name == "transformer.ln_f.bias"; });
  const std::vector<float> zeros(300);
  for (TensorToWrite& tensor : tensors) {
    if (tensor.name == "transformer.wpe.weight") {
      tensor = {tensor.name, DType::kF32, {8, 4}, std::as_bytes(std::span(zeros).first(32))};
    }
    if (tensor.name == "transformer.ln_f.weight") {
      tensor = {tensor.name, DType::kI32, {4}, std::as_bytes(std::span(zeros).first(4))};
    }
  }
  tensors.push_back({"score.weight", DType::kF32, {4}, std::as_bytes(std::span(zeros).first(4))});
  EXPECT_THAT(load_error(tensors),
              AllOf(HasSubstr("1 missing: transformer.ln_f.bias"),
                    HasSubstr("transformer.wpe.weight [8, 4] F32 (need [4, 4]"),
                    HasSubstr("transformer.ln_f.weight [4] I32"),
                    HasSubstr("1 unknown: score.weight"), Not(HasSubstr("c_attn"))));
  EXPECT_EQ(model_.values, std::vector<float>(model_.values.size(), 0.0F));
}

TEST_F(HfWeights, ShortenALongListOfMissingTensors) {
  EXPECT_THAT(load_error({}), AllOf(HasSubstr("16 missing"), HasSubstr(", ...")));
}

TEST_F(HfWeights, ComeWithTheByteTokenizerOrACopyOfTheirOwn) {
  HfExport model = model_.to_export();
  write_hf_folder(storage_, directory_ / "none", model);
  EXPECT_EQ(storage_.kind(directory_ / "none/tokenizer.json"), FileKind::kAbsent);
  model.byte_tokenizer = true;  // but the model has 11 ids only
  write_hf_folder(storage_, directory_ / "small", model);
  EXPECT_EQ(storage_.kind(directory_ / "small/tokenizer.json"), FileKind::kAbsent);
  write_atomically(storage_, directory_ / "tokenizer.json", "theirs");
  model.byte_tokenizer = false;
  model.tokenizer_from = directory_.path();
  write_hf_folder(storage_, directory_ / "copied", model);
  EXPECT_EQ(read_text(storage_, directory_ / "copied/tokenizer.json"), "theirs");
}

TEST_F(HfWeights, NewFolderAppearsWholeOrNotAtAll) {
  const HfExport model = model_.to_export();
  FaultyStorage full(storage_, {.disk_full_after_bytes = 2000});  // config.json fits
  EXPECT_THROW(write_hf_folder(full, directory_ / "out", model), SystemError);
  EXPECT_EQ(storage_.kind(directory_ / "out"), FileKind::kAbsent);
  EXPECT_THAT(storage_.list(directory_.path()), testing::IsEmpty());
  write_hf_folder(storage_, directory_ / "out/", model);
  EXPECT_EQ(storage_.kind(directory_ / "out/model.safetensors"), FileKind::kFile);
}

TEST_F(HfWeights, ExistingFolderKeepsNoTokenizerOfAnotherModel) {
  write_hf_folder(storage_, directory_ / "out", model_.to_export());
  write_atomically(storage_, directory_ / "out/vocab.json", "another model's");
  write_atomically(storage_, directory_ / "out/notes.txt", "mine");
  write_hf_folder(storage_, directory_ / "out", model_.to_export());
  EXPECT_EQ(storage_.kind(directory_ / "out/vocab.json"), FileKind::kAbsent);
  EXPECT_EQ(read_text(storage_, directory_ / "out/notes.txt"), "mine");
}

TEST_F(HfWeights, WeightsAreTheLastThingWrittenOverAnExistingFolder) {
  storage_.create_directories(directory_ / "out");
  FaultyStorage full(storage_, {.disk_full_after_bytes = 2000});
  EXPECT_THROW(write_hf_folder(full, directory_ / "out", model_.to_export()), SystemError);
  EXPECT_EQ(storage_.kind(directory_ / "out/config.json"), FileKind::kFile);
  EXPECT_EQ(storage_.kind(directory_ / "out/model.safetensors"), FileKind::kAbsent);
}

std::vector<std::string> names_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  return names;
}

TEST_F(HfWeights, CompanionsKeepTokensAndTokenizerOfTheFolderAModelBeganFrom) {
  ModelConfig bytes;
  bytes.context = 16;
  const ModelShape shape = model_shape(bytes, 16);
  EXPECT_THAT(names_of(hf_companions(storage_, shape, {}, false)),
              ElementsAre("config.json", "generation_config.json"));
  EXPECT_THAT(names_of(hf_companions(storage_, shape, {}, true)),
              ElementsAre("config.json", "generation_config.json", "tokenizer.json",
                          "tokenizer_config.json"));
  write_atomically(storage_, directory_ / "config.json",
                   read_text(storage_, kGolden / "llama/config.json"));
  write_atomically(storage_, directory_ / "merges.txt", "theirs");
  const auto files = hf_companions(storage_, shape, directory_.path(), true);
  EXPECT_THAT(names_of(files), ElementsAre("config.json", "generation_config.json", "merges.txt"));
  EXPECT_EQ(parse_hf_config(files[0].second, "c").tokens.eos, 2) << "as in the golden config.json";
}

}  // namespace
}  // namespace isthmus::this_file
