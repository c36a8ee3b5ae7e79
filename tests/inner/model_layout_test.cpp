// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inner/loop/model_cost.h"
#include "inner/model/init.h"
#include "inner/model/model.h"
#include "inner/model/presets.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;

ModelConfig small(const std::string& arch) {
  return {.arch = arch, .layers = 2, .d_model = 16, .heads = 4, .vocab = 32, .context = 8};
}

std::vector<std::string> names(const ModelLayout& layout, std::size_t first, std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = first; i < first + count; ++i) out.push_back(layout.tensors()[i].name);
  return out;
}

TEST(ModelLayout, NamesGpt2AsHuggingFaceDoes) {
  const ModelLayout layout(model_shape(small("gpt2"), 8));
  EXPECT_THAT(names(layout, 0, 14),
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                          "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                          "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                          "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                          "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                          "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias"));
  EXPECT_THAT(layout.tensors()[4].shape, ElementsAre(16, 48));
  EXPECT_THAT(layout.tensors()[12].shape, ElementsAre(64, 16));
  EXPECT_EQ(layout.tensors().back().name, "transformer.ln_f.bias");
  EXPECT_EQ(layout.tensors()[13].layer, 0);
  EXPECT_EQ(layout.tensors()[14].layer, 1);
  EXPECT_EQ(layout.tensors().back().layer, kNoLayer);
}

TEST(ModelLayout, NamesLlamaAndItsQueryKeyNormsAsHuggingFaceDoes) {
  ModelConfig config = small("llama");
  config.kv_heads = 2;
  config.qk_norm = true;
  config.tied = false;
  config.head_dim = 6;
  config.d_ff = 40;
  const ModelLayout layout(model_shape(config, 8));
  EXPECT_THAT(
      names(layout, 0, 12),
      ElementsAre(
          "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
          "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
          "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight",
          "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"));
  EXPECT_THAT(layout.tensors()[2].shape, ElementsAre(24, 16));
  EXPECT_THAT(layout.tensors()[3].shape, ElementsAre(12, 16));
  EXPECT_THAT(layout.tensors()[5].shape, ElementsAre(16, 24));
  EXPECT_THAT(layout.tensors()[9].shape, ElementsAre(40, 16));
  EXPECT_THAT(layout.tensors()[11].shape, ElementsAre(16, 40));
  EXPECT_EQ(layout.tensors().back().name, "lm_head.weight");
  EXPECT_EQ(layout.head(), layout.tensors().size() - 1);
}

TEST(ModelLayout, CoversItsElementsWithoutGaps) {
  for (const char* arch : {"gpt2", "llama"}) {
    const ModelLayout layout(model_shape(small(arch), 8));
    std::int64_t at = 0;
    for (const TensorInfo& tensor : layout.tensors()) {
      EXPECT_EQ(tensor.elements.begin, at) << tensor.name;
      std::int64_t size = 1;
      for (const std::int64_t extent : tensor.shape) size *= extent;
      EXPECT_EQ(tensor.elements.size(), size) << tensor.name;
      EXPECT_EQ(tensor.decay(), tensor.shape.size() >= 2) << tensor.name;
      at = tensor.elements.end;
    }
    EXPECT_EQ(layout.elements(), at);
  }
}

TEST(ModelLayout, CountsTheParametersOfGpt2Small) {
  EXPECT_EQ(ModelLayout(model_shape(find_workload("gpt2-124m-1k").model, 1024)).elements(),
            124'439'808);  // as Hugging Face counts "gpt2"
}

TEST(ModelShape, FillsWhatIsLeftOpen) {
  ModelConfig config = small("llama");
  config.context = 0;
  config.d_model = 100;
  config.heads = 5;
  const ModelShape shape = model_shape(config, 50);
  EXPECT_EQ(shape.kv_heads, 5);
  EXPECT_EQ(shape.head_dim, 20);
  EXPECT_EQ(shape.d_ff, 288);  // 8/3 * 100 = 266.7, up to a multiple of 32
  EXPECT_EQ(shape.positions, 50);
}

TEST(ModelShape, RefusesSizesThatDoNotFitAndNamesTheKey) {
  const auto refused = [](const std::string& arch, const char* key, const auto& change) {
    ModelConfig config = small(arch);
    change(config);
    try {
      static_cast<void>(model_shape(config, 8));
      FAIL() << "accepted: " << key;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(key));
    }
  };
  refused("gpt", "model.arch", [](ModelConfig&) {});
  refused("gpt2", "model.n_layers", [](ModelConfig& c) { c.layers = 0; });
  refused("gpt2", "model.d_model", [](ModelConfig& c) { c.d_model = std::int64_t{1} << 60; });
  refused("gpt2", "model.n_heads", [](ModelConfig& c) { c.heads = 3; });
  refused("gpt2", "model.n_kv_heads", [](ModelConfig& c) { c.kv_heads = 2; });
  refused("gpt2", "model.head_dim", [](ModelConfig& c) { c.head_dim = 8; });
  refused("gpt2", "model.qk_norm", [](ModelConfig& c) { c.qk_norm = true; });
  refused("gpt2", "model.vocab", [](ModelConfig& c) { c.vocab = -1; });
  refused("gpt2", "train.context", [](ModelConfig& c) { c.context = 7; });
  refused("llama", "model.n_kv_heads", [](ModelConfig& c) { c.kv_heads = 3; });
  refused("llama", "model.head_dim", [](ModelConfig& c) { c.head_dim = 5; });
}

TEST(Initialize, IsAFunctionOfSeedAndElementAlone) {
  const ModelLayout layout(model_shape(small("gpt2"), 8));
  const auto values_of = [&](int threads, std::uint64_t seed) {
    kernels::ThreadTeam team(threads);
    std::vector<float> values(static_cast<std::size_t>(layout.elements()));
    initialize(team, layout, seed, values);
    return values;
  };
  EXPECT_EQ(values_of(1, 3), values_of(3, 3));
  EXPECT_NE(values_of(1, 3), values_of(1, 4));
}

TEST(Initialize, HasTheSpreadOfItsKind) {
  ModelConfig config = small("gpt2");
  config.layers = 8;
  config.d_model = 64;
  const ModelLayout layout(model_shape(config, 8));
  kernels::ThreadTeam team(1);
  std::vector<float> values(static_cast<std::size_t>(layout.elements()));
  initialize(team, layout, 1, values);
  for (const TensorInfo& tensor : layout.tensors()) {
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = tensor.elements.begin; i < tensor.elements.end; ++i) {
      sum += static_cast<double>(values[static_cast<std::size_t>(i)]);
      squares += std::pow(static_cast<double>(values[static_cast<std::size_t>(i)]), 2);
    }
    const auto n = static_cast<double>(tensor.elements.size());
    const bool norm_weight = tensor.name.find("ln_") != std::string::npos;
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(sum, norm_weight && tensor.name.ends_with("weight") ? n : 0.0) << tensor.name;
      continue;
    }
    const double expected = tensor.name.find("c_proj") != std::string::npos ? 0.02 / 4 : 0.02;
    // The deviation of n samples errs by 1 / sqrt(2 n) of itself; five times that.
    EXPECT_NEAR(std::sqrt(squares / n), expected, expected * 5 / std::sqrt(2 * n)) << tensor.name;
  }
}

TEST(ModelCost, CountsOperationsAsTheUsualFormulaDoes) {
  const Workload tiny = find_workload("tiny");
  const ModelLayout layout(model_shape(tiny.model, tiny.context));
  const double weights = 842'496 - 128 * 128;  // parameters less positions
  EXPECT_EQ(training_flops_per_token(layout, 128), 6 * weights + 12.0 * 4 * 128 * 128);
  ModelConfig untied = tiny.model;
  untied.tied = false;
  const ModelLayout longer(model_shape(untied, tiny.context));
  EXPECT_EQ(training_flops_per_token(longer, 128), training_flops_per_token(layout, 128));
}

TEST(ModelCost, MemoryIsFourArraysAndTheArena) {
  const Workload tiny = find_workload("tiny");
  const ModelLayout layout(model_shape(tiny.model, tiny.context));
  constexpr std::int64_t kRows = std::int64_t{16} * 128;
  const MemoryEstimate memory = training_memory(layout, {}, kRows);
  EXPECT_EQ(memory.parameters + memory.gradients + memory.moments, 16 * layout.elements());
  // Kept per row and layer: stream, norms, qkv, attention, middle, up and GELU: 16 d and a little.
  const double per_row = static_cast<double>(memory.activations) / (4.0 * kRows * 128 * 4);
  EXPECT_GT(per_row, 16);
  EXPECT_LT(per_row, 20);
  EXPECT_EQ(memory.logits, kRows * 256 * 4);
}

TEST(ModelCost, Bf16HalvesWhatProductsRead) {
  for (const char* name : {"tiny", "llama-mid"}) {
    const Workload w = find_workload(name);
    const ModelLayout layout(model_shape(w.model, w.context));
    const ModelShape& s = layout.shape();
    constexpr std::int64_t kRows = 2048;
    const std::int64_t wide = training_memory(layout, {}, kRows).activations;
    const std::int64_t narrow =
        training_memory(layout, {}, kRows, Recompute::kNone, true).activations;
    // Two bytes less for each value: two norms, attention in and out, and the feed-forward layer of
    // every layer.
    const std::int64_t inner = s.architecture == Architecture::kGpt2 ? 2 * s.d_ff : 3 * s.d_ff;
    const std::int64_t layer = 2 * s.d_model + s.qkv_width() + s.query_width() + inner;
    EXPECT_GE(wide - narrow, 2 * kRows * s.layers * layer) << name;
    EXPECT_LT(wide - narrow, 2 * kRows * (s.layers + 1) * layer) << name;
  }
}

TEST(ModelCost, MuonSavesTheSecondMomentOfItsMatrices) {
  const Workload tiny = find_workload("tiny");
  const ModelLayout layout(model_shape(tiny.model, tiny.context));
  constexpr std::int64_t kRows = std::int64_t{16} * 128;
  const MemoryEstimate adamw = training_memory(layout, {}, kRows);
  const MemoryEstimate muon = training_memory(layout, {.optimizer = "muon"}, kRows);
  constexpr std::int64_t kMatrices = std::int64_t{4} * 12 * 128 * 128;
  EXPECT_EQ(adamw.moments - muon.moments, kMatrices * 4);
  // Two matrices of 128 x 512 and two of 128 x 128.
  EXPECT_EQ(muon.update, 2 * (128 * 512 + 128 * 128) * 4);
  EXPECT_EQ(adamw.update, 0);
  EXPECT_EQ(adamw.total() - muon.total(), kMatrices * 4 - muon.update);
}

}  // namespace
}  // namespace isthmus::this_file
