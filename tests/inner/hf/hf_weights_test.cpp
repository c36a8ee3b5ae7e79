// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/state/safetensors.h"
#include "core/temporary_directory.h"
#include "inner/hf/hf_companions.h"
#include "inner/model/model_layout.h"
#include "isthmus/errors.h"
#include "storage_faults.h"
#include "test_paths.h"
#include "text/byte_level_files.h"

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
  // One of them under another name.
  TensorToWrite of_name(const std::string& name, const std::string& as) {
    const SafetensorsEntry& entry = *golden_->find(name);
    return {as, entry.dtype, entry.shape, golden_->bytes(entry)};
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
  const std::vector<float> mask = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
  const std::vector<std::uint8_t> bytes(mask.begin(), mask.end());
  const float masked = -1e4F;
  const TensorToWrite head = of_name("transformer.wte.weight", "lm_head.weight");
  for (TensorToWrite& tensor : tensors) tensor.name = tensor.name.substr(12);
  tensors.push_back({"h.0.attn.bias", DType::kF32, {1, 1, 4, 4}, std::as_bytes(std::span(mask))});
  tensors.push_back({"h.1.attn.bias", DType::kBool, {4, 4}, std::as_bytes(std::span(bytes))});
  tensors.push_back(
      {"h.0.attn.masked_bias", DType::kF32, {}, std::as_bytes(std::span(&masked, 1))});
  tensors.push_back(head);
  EXPECT_EQ(load_error(tensors), "");
  EXPECT_THAT(check_hf_weights(storage_, directory_.path(), model_.parameters),
              ElementsAre("2 tensors h.*.attn.bias", "tensor h.0.attn.masked_bias",
                          "tensor lm_head.weight"));
  Model whole(read_hf_config(storage_, kGolden / "gpt2"));
  EXPECT_THAT(load_hf_weights(storage_, kGolden / "gpt2", whole.parameters), testing::IsEmpty());
  EXPECT_EQ(model_.values, whole.values);
}

TEST_F(HfWeights, RefuseATiedHeadWithValuesOfItsOwn) {
  std::vector<TensorToWrite> tensors = golden_tensors();
  TensorToWrite head = of_name("transformer.wte.weight", "lm_head.weight");
  std::vector<std::byte> other(head.bytes.begin(), head.bytes.end());
  other[3] ^= std::byte{0x80};  // the sign of the first value
  head.bytes = other;
  tensors.push_back(head);
  EXPECT_THAT(load_error(tensors),
              AllOf(HasSubstr("model.safetensors: tensor lm_head.weight has 1 of 44 values other"),
                    HasSubstr("transformer.wte.weight"), HasSubstr("tie_word_embeddings\": false"),
                    HasSubstr("or remove the tensor")));
  tensors.back().shape = {4, 11};
  EXPECT_THAT(load_error(tensors), HasSubstr("lm_head.weight is [4, 11] F32"));
  EXPECT_EQ(model_.values, std::vector<float>(model_.values.size(), 0.0F));
}

TEST_F(HfWeights, RefuseBuffersThatSayAnotherModel) {
  const auto with = [&](const char* name, DType dtype, std::vector<std::int64_t> shape,
                        const auto& values) {
    std::vector<TensorToWrite> tensors = golden_tensors();
    tensors.push_back({name, dtype, std::move(shape), std::as_bytes(std::span(values))});
    return load_error(tensors);
  };
  const std::vector<float> ones(16, 1);
  EXPECT_THAT(with("transformer.h.0.attn.bias", DType::kF32, {1, 1, 4, 4}, ones),
              HasSubstr("no causal mask: row 0, column 1 is 1 instead of 0"));
  EXPECT_THAT(with("transformer.h.0.attn.bias", DType::kF32, {16}, ones),
              HasSubstr("of shape [16] is no causal mask"));
  EXPECT_THAT(with("transformer.h.0.attn.bias", DType::kF64, {2, 4}, ones),
              HasSubstr("is of type F64"));
  EXPECT_THAT(with("transformer.h.0.attn.masked_bias", DType::kF32, {16}, ones),
              HasSubstr("masks nothing"));
  const std::vector<float> nan(1, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(with("transformer.h.0.attn.masked_bias", DType::kF32, {}, nan),
              HasSubstr("is nan, and masks nothing"));
}

TEST_F(HfWeights, RefuseRotaryFrequenciesOfAnotherBase) {
  Model llama(read_hf_config(storage_, kGolden / "llama"));
  const Safetensors golden = Safetensors::open(storage_, kGolden / "llama/model.safetensors");
  // Heads of the golden model have a single frequency, which is 1 for every base.
  std::string config = read_text(storage_, kGolden / "llama/config.json");
  const std::string narrow = "\"head_dim\": 2";
  config.replace(config.find(narrow), narrow.size(), "\"head_dim\": 4");
  const auto load_all = [&](const std::vector<float>& frequencies) {
    std::vector<TensorToWrite> tensors;
    for (const SafetensorsEntry& entry : golden.entries()) {
      tensors.push_back({entry.name, entry.dtype, entry.shape, golden.bytes(entry)});
    }
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                       DType::kF32,
                       {static_cast<std::int64_t>(frequencies.size())},
                       std::as_bytes(std::span(frequencies))});
    write_atomically(storage_, directory_ / "config.json", config);
    write_safetensors(storage_, directory_ / "model.safetensors", tensors);
    return message_of<SystemError>(
        [&] { load_hf_weights(storage_, directory_.path(), llama.parameters); });
  };
  const auto load = [&](float second) { return load_all({1, second}); };
  EXPECT_EQ(load(0.01F), "") << "10000^(-1/2)";
  EXPECT_EQ(load(0.0100098F), "") << "rounded to bfloat16, kept as F32";
  EXPECT_THAT(load_all({1}), HasSubstr("has 1 frequencies, and heads of 4 values"));
  EXPECT_THAT(load_all({1, 0.1F, 0.01F, 0.001F}), HasSubstr("has 4 frequencies"));
  EXPECT_THAT(load(0.0014142F), AllOf(HasSubstr("has frequency 0.0014142 at 1"),
                                      HasSubstr("rope_theta = 10000"), HasSubstr("gives 0.01")));
}

TEST_F(HfWeights, RefuseValuesThatAreNotFinite) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<TensorToWrite> tensors = golden_tensors();
    // 2 bytes a value: 1.0, and NaN or infinity at [2, 1] of (4, 4).
    std::vector<std::uint16_t> halves(16, dtype == DType::kF16 ? 0x3C00 : 0x3F80);
    halves[9] = dtype == DType::kF16 ? 0x7E00 : 0x7F80;
    std::vector<float> floats(16, 1);
    floats[9] = std::numeric_limits<float>::quiet_NaN();
    floats[15] = -std::numeric_limits<float>::infinity();
    for (TensorToWrite& tensor : tensors) {
      if (tensor.name != "transformer.wpe.weight") continue;
      tensor.dtype = dtype;
      tensor.bytes = dtype == DType::kF32 ? std::as_bytes(std::span(floats))
                                          : std::as_bytes(std::span(halves));
    }
    const char* value = dtype == DType::kBF16 ? "infinity" : "NaN";
    EXPECT_THAT(load_error(tensors),
                AllOf(HasSubstr("model.safetensors: tensor transformer.wpe.weight holds"),
                      HasSubstr(std::string(value) + " at [2, 1]"),
                      HasSubstr(dtype == DType::kF32 ? "2 of its 16" : "1 of its 16")));
    EXPECT_EQ(model_.values, std::vector<float>(model_.values.size(), 0.0F));
    EXPECT_THAT(message_of<SystemError>(
                    [&] { check_hf_weights(storage_, directory_.path(), model_.parameters); }),
                HasSubstr("wpe"));
  }
}

TEST_F(HfWeights, AcceptNamesOfWrappedModels) {
  Model whole(read_hf_config(storage_, kGolden / "gpt2"));
  load_hf_weights(storage_, kGolden / "gpt2", whole.parameters);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"transformer.", "_orig_mod.transformer."},
           {"transformer.", "module._orig_mod.transformer."},
           {"transformer.h.0.", "transformer.h.0._orig_mod."},
           {".attn.", "._checkpoint_wrapped_module.attn."}}) {
    std::vector<TensorToWrite> tensors = golden_tensors();
    for (TensorToWrite& tensor : tensors) {
      if (const std::size_t at = tensor.name.find(from); at != std::string::npos) {
        tensor.name.replace(at, from.size(), to);
      }
    }
    std::ranges::fill(model_.values, 0.0F);
    EXPECT_EQ(load_error(tensors), "") << to;
    EXPECT_EQ(model_.values, whole.values) << to;
  }
  std::vector<TensorToWrite> both = golden_tensors();
  both.push_back(of_name("transformer.wpe.weight", "_orig_mod.transformer.wpe.weight"));
  EXPECT_THAT(load_error(both), AllOf(HasSubstr("_orig_mod.transformer.wpe.weight"),
                                      HasSubstr("which are one tensor")));
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
}

TEST_F(HfWeights, KeepSettingsAndCompanionsOfTheirFolder) {
  const std::filesystem::path from = directory_ / "from";
  storage_.create_directories(from / "onnx");
  const auto put = [&](const char* name, const std::string& text) {
    write_atomically(storage_, from / name, text);
  };
  put("config.json", R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 4, "n_embd": 4,
      "n_layer": 1, "n_head": 2, "eos_token_id": [2, 8], "auto_map": {"A": "b.C"}})");
  put("generation_config.json", "{\"temperature\": 0.6}");
  put("tokenizer.json", "{\"theirs\": 1}\n");
  put("tokenizer.model", std::string("\0\xff", 2));
  put("chat_template.json", "{\"chat_template\": \"x\"}");
  put("LICENSE.txt", "free");
  for (const char* name : {"README.md", "pytorch_model.bin", "optimizer.pt", ".gitattributes",
                           "model-00001-of-00001.safetensors"}) {
    put(name, "no companion");
  }
  HfExport model = model_.to_export();
  model.from = from;
  const std::vector<std::string> left_out = write_hf_folder(storage_, directory_ / "out", model);
  EXPECT_THAT(left_out, ElementsAre("README.md", "model-00001-of-00001.safetensors", "onnx/",
                                    "optimizer.pt", "pytorch_model.bin", "config.json: auto_map"))
      << "no index names the shard";
  EXPECT_THAT(
      storage_.list(directory_ / "out"),
      ElementsAre("LICENSE.txt", "chat_template.json", "config.json", "generation_config.json",
                  "model.safetensors", "tokenizer.json", "tokenizer.model"));
  for (const char* name : {"LICENSE.txt", "chat_template.json", "generation_config.json",
                           "tokenizer.json", "tokenizer.model"}) {
    EXPECT_EQ(read_text(storage_, directory_ / "out" / name), read_text(storage_, from / name));
  }
  EXPECT_THAT(read_hf_config(storage_, directory_ / "out").settings,
              HasSubstr("\"eos_token_id\":[2,8]"));
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
  write_atomically(storage_, directory_ / "out/spice.model", "mine");
  write_atomically(storage_, directory_ / "out/page.jinja", "mine");
  storage_.create_directories(directory_ / "out/tokenizer.model");
  write_hf_folder(storage_, directory_ / "out", model_.to_export());
  EXPECT_EQ(read_text(storage_, directory_ / "out/spice.model"), "mine");
  EXPECT_EQ(read_text(storage_, directory_ / "out/page.jinja"), "mine");
  EXPECT_EQ(storage_.kind(directory_ / "out/tokenizer.model"), FileKind::kDirectory);
}

// Folders of a cache have links for files; transformers would read what a stale one leads to.
TEST_F(HfWeights, ExistingFolderKeepsNoLinkToATokenizerOfAnotherModel) {
  const std::filesystem::path out = directory_ / "out";
  storage_.create_directories(out);
  write_atomically(storage_, directory_ / "blob", "another model's");
  storage_.create_directories(directory_ / "templates");
  storage_.create_link(directory_ / "blob", out / "tokenizer.json");
  storage_.create_link("gone", out / "vocab.json");
  storage_.create_link(directory_ / "templates", out / "tokenizer.model");
  storage_.create_link(directory_ / "blob", out / "generation_config.json");  // to be replaced
  write_hf_folder(storage_, out, model_.to_export());
  EXPECT_EQ(storage_.kind(out / "tokenizer.json"), FileKind::kAbsent);
  EXPECT_EQ(storage_.kind(out / "vocab.json"), FileKind::kAbsent);
  EXPECT_EQ(storage_.kind(out / "tokenizer.model"), FileKind::kLink) << "a folder is the user's";
  EXPECT_EQ(storage_.kind(out / "generation_config.json"), FileKind::kFile);
  EXPECT_EQ(read_text(storage_, directory_ / "blob"), "another model's");
}

TEST_F(HfWeights, ExistingFolderWithAnAdapterIsRefused) {
  const std::filesystem::path out = directory_ / "out";
  storage_.create_directories(out);
  write_atomically(storage_, out / "adapter_config.json", "{}");
  try {
    write_hf_folder(storage_, out, model_.to_export());
    FAIL() << "was written";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("adapter_config.json"), HasSubstr("another folder")));
  }
  EXPECT_THAT(storage_.list(out), ElementsAre("adapter_config.json"));
}

TEST_F(HfWeights, WeightsAreTheLastThingWrittenOverAnExistingFolder) {
  storage_.create_directories(directory_ / "out");
  FaultyStorage full(storage_, {.disk_full_after_bytes = 2000});
  EXPECT_THROW(write_hf_folder(full, directory_ / "out", model_.to_export()), SystemError);
  EXPECT_EQ(storage_.kind(directory_ / "out/config.json"), FileKind::kFile);
  EXPECT_EQ(storage_.kind(directory_ / "out/model.safetensors"), FileKind::kAbsent);
}

std::vector<std::string> names_of(const HfCompanions& companions) {
  std::vector<std::string> names;
  for (const auto& [name, text] : companions.files) names.push_back(name);
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
  const HfCompanions kept = hf_companions(storage_, shape, directory_.path(), true);
  EXPECT_THAT(names_of(kept), ElementsAre("config.json", "generation_config.json", "merges.txt"));
  EXPECT_THAT(kept.files[0].second, HasSubstr("\"eos_token_id\": 2")) << "as in the golden one";
}

TEST_F(HfWeights, CompanionsThatAreBrokenDownloadsAreRefused) {
  const auto said = [&](const char* name, const std::string& text) {
    write_atomically(storage_, directory_ / name, text);
    const std::string error =
        message_of<SystemError>([&] { (void)companions_in(storage_, directory_.path()); });
    std::filesystem::remove(directory_ / name);
    return error;
  };
  EXPECT_THAT(said("tokenizer.json", "{\"model\": {\"vocab\": {\"a\""),
              AllOf(HasSubstr("tokenizer.json: ends in the middle"), HasSubstr("or remove it")));
  EXPECT_THAT(said("generation_config.json", "<!DOCTYPE html>\n<html>"),
              HasSubstr("generation_config.json: is no JSON: it begins with \"<!DOCTYPE html>?\""));
  EXPECT_THAT(said("special_tokens_map.json", "Entry not found"), HasSubstr("is no JSON"));
  EXPECT_THAT(said("vocab.json", " \n"), HasSubstr("vocab.json: is empty"));
  EXPECT_EQ(said("added_tokens.json", "\xEF\xBB\xBF{\"a\": NaN}\r\n"), "");
  EXPECT_EQ(said("merges.txt", "#version"), "");
}

TEST_F(HfWeights, IdsAreReadBehindLinksAndADamagedFileIsANote) {
  write_atomically(storage_, directory_ / "blob", "{\"eos_token_id\": 50256}");
  storage_.create_link("blob", directory_ / "generation_config.json");
  EXPECT_THAT(ids_outside_vocabulary(storage_, directory_.path(), 300),
              ElementsAre(HasSubstr("generation_config.json: eos_token_id names 50256")));
  write_atomically(storage_, directory_ / "blob", "Entry not found");
  EXPECT_THAT(ids_outside_vocabulary(storage_, directory_.path(), 300),
              ElementsAre(HasSubstr("its token ids were not checked")));
}

TEST_F(HfWeights, DamagedFilesBesideATokenizerAreLeftOut) {
  write_atomically(storage_, directory_ / "tokenizer.json", "{}");
  write_atomically(storage_, directory_ / "LICENSE.json", "");
  write_atomically(storage_, directory_ / "tokenizer.model",
                   "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9000\n");
  const HfCompanions found = tokenizer_files_in(storage_, directory_.path());
  EXPECT_THAT(names_of(found), ElementsAre("tokenizer.json"));
  EXPECT_THAT(found.left_out, ElementsAre(HasSubstr("tokenizer.model")));
}

TEST_F(HfWeights, CheckpointsOfOursHaveNothingThatIsLeftOut) {
  for (const char* name : {"state.json", "shared.safetensors", "notes", "tokenizer.json"}) {
    write_atomically(storage_, directory_ / name, "{}");
  }
  const HfCompanions companions = companions_in(storage_, directory_.path());
  EXPECT_THAT(names_of(companions), ElementsAre("tokenizer.json"));
  EXPECT_THAT(companions.left_out, testing::IsEmpty());
}

TEST_F(HfWeights, TokenizersOfTheirOwnAreToldFromOurs) {
  const auto own = [&](const std::string& name, const std::string& text) {
    storage_.remove_all(directory_ / "own");
    storage_.create_directories(directory_ / "own");
    write_atomically(storage_, directory_ / "own" / name, text);
    return own_tokenizer(storage_, directory_ / "own");
  };
  EXPECT_EQ(own("config.json", "{}"), std::nullopt);
  EXPECT_EQ(own("tokenizer.json", byte_tokenizer_text(256)), std::nullopt);
  EXPECT_EQ(own("tokenizer.json", byte_tokenizer_text(300)), std::nullopt);
  EXPECT_EQ(own("tokenizer.json", "{}"), "tokenizer.json");
  EXPECT_EQ(own("tokenizer.json", "not JSON"), "tokenizer.json");
  EXPECT_EQ(own("vocab.json", "{}"), "vocab.json");
  EXPECT_EQ(own("spiece.model", "x"), "spiece.model");
  EXPECT_EQ(own("qwen.tiktoken", "x"), "qwen.tiktoken");
  // What is beside a vocabulary that is elsewhere, fairseq's, and names of another case.
  for (const char* name :
       {"special_tokens_map.json", "added_tokens.json", "dict.txt", "Tokenizer.JSON"}) {
    EXPECT_EQ(own(name, "{}"), name);
  }
  storage_.create_directories(directory_ / "pipeline" / "tokenizer");
  EXPECT_EQ(own_tokenizer(storage_, directory_ / "pipeline"), "tokenizer");
  EXPECT_EQ(own("chat_template.jinja", "x"), std::nullopt);
}

}  // namespace
}  // namespace isthmus::this_file
