// SPDX-License-Identifier: Apache-2.0
// The whole model's gradient against central differences in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "inner/model/model.h"
#include "inner/model/model_layout.h"
#include "inner/model_families.h"

namespace isthmus::this_file {
namespace {

struct GradientCase {
  std::string name;
  ModelConfig model;
};

void PrintTo(const GradientCase& c, std::ostream* out) { *out << c.name; }

ModelConfig small_model(const std::string& arch, bool tied) {
  return {.arch = arch,
          .layers = 2,
          .d_model = 12,
          .heads = 2,
          .d_ff = 20,
          .vocab = 11,
          .context = 9,
          .tied = tied};
}

std::vector<GradientCase> cases() {
  std::vector<GradientCase> all = {{"Gpt2Tied", small_model("gpt2", true)},
                                   {"Gpt2Untied", small_model("gpt2", false)},
                                   {"Gpt2ZLoss", small_model("gpt2", true)},
                                   {"LlamaTied", small_model("llama", true)},
                                   {"LlamaUntied", small_model("llama", false)},
                                   {"LlamaGroupedQueries", small_model("llama", true)},
                                   {"LlamaQueryKeyNorm", small_model("llama", true)},
                                   {"LlamaWideHeadsZLoss", small_model("llama", false)}};
  all[2].model.z_loss = 0.01;
  all[5].model.heads = 6;
  all[5].model.kv_heads = 2;
  all[6].model.qk_norm = true;
  all[6].model.heads = 6;
  all[6].model.kv_heads = 3;
  all[7].model.head_dim = 8;  // heads wider than the residual stream
  all[7].model.kv_heads = 1;
  all[7].model.qk_norm = true;
  all[7].model.z_loss = 0.02;
  for (const std::string& family : family_names()) {
    ModelConfig model = small_model("llama", false);
    model.heads = 6;
    model.kv_heads = 3;
    model.head_dim = 6;
    std::string name = family;
    std::erase(name, '-');
    all.push_back({"Family_" + name, of_family(model, family)});
  }
  return all;
}

class ModelGradientTest : public testing::TestWithParam<GradientCase> {};

TEST_P(ModelGradientTest, EqualsCentralDifferences) {
  constexpr std::int64_t kSequences = 2;
  constexpr std::int64_t kLength = 7;  // shorter than the positions
  const ModelLayout layout(model_shape(GetParam().model, kLength));
  const Rng rng{7, Stream::kTestData};
  // Far from the initial values, so that no norm is 1 and no bias 0.
  std::vector<double> weights(static_cast<std::size_t>(layout.elements()));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.4 * rng.normal(i);
  std::vector<std::int32_t> inputs(kSequences * kLength);
  std::vector<std::int32_t> targets(inputs.size());
  const auto vocab = static_cast<std::uint64_t>(layout.shape().vocab);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>(rng.below(vocab, i, 1));
    targets[i] = static_cast<std::int32_t>(rng.below(vocab, i, 2));
  }
  const TokenBatch batch{inputs, targets, kSequences, kLength};
  const double scale = 1.0 / static_cast<double>(inputs.size());

  kernels::ThreadTeam team(1);
  LanguageModel<double> model(layout, kSequences * kLength,
                              LanguageModel<double>::Purpose::kTraining);
  FlatWeights<double> flat(layout, weights.data());
  std::vector<double> gradients(weights.size(), 0.0);
  static_cast<void>(model.loss_and_gradients(
      team, flat, batch, {.gradient_scale = scale, .gradients = gradients.data()}));

  const auto objective = [&] {
    const LossSum sum = model.loss(team, flat, batch);
    return scale * (sum.loss + sum.z_loss);
  };
  // Central differences err by h^2 f''' / 6 + eps / h, about 1e-9 here.
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 1e-7;
  constexpr int kSamplesPerTensor = 6;
  for (const TensorInfo& tensor : layout.tensors()) {
    for (int k = 0; k < kSamplesPerTensor; ++k) {
      const auto at = static_cast<std::size_t>(tensor.elements.begin) +
                      rng.below(static_cast<std::uint64_t>(tensor.elements.size()),
                                static_cast<std::uint64_t>(tensor.elements.begin),
                                10 + static_cast<std::uint32_t>(k));
      const double kept = weights[at];
      weights[at] = kept + kStep;
      const double above = objective();
      weights[at] = kept - kStep;
      const double below = objective();
      weights[at] = kept;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradients[at], expected, kTolerance * std::max(1.0, std::abs(expected)))
          << tensor.name << " element " << at - static_cast<std::size_t>(tensor.elements.begin);
    }
  }
}

TEST_P(ModelGradientTest, AddsToWhatIsThere) {
  const ModelLayout layout(model_shape(GetParam().model, 5));
  const Rng rng{8, Stream::kTestData};
  std::vector<double> weights(static_cast<std::size_t>(layout.elements()));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.3 * rng.normal(i);
  const std::vector<std::int32_t> inputs = {1, 4, 2, 9, 0};
  const std::vector<std::int32_t> targets = {4, 2, -1, 0, 3};  // one target does not count
  const TokenBatch batch{inputs, targets, 1, 5};
  kernels::ThreadTeam team(1);
  LanguageModel<double> model(layout, 5, LanguageModel<double>::Purpose::kTraining);
  FlatWeights<double> flat(layout, weights.data());
  std::vector<double> once(weights.size(), 0.0);
  std::vector<double> twice(weights.size(), 0.0);
  const LossSum sum = model.loss_and_gradients(team, flat, batch, {.gradients = once.data()});
  EXPECT_EQ(sum.targets, 4);
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(model.loss_and_gradients(team, flat, batch, {.gradients = twice.data()}));
  }
  for (std::size_t i = 0; i < once.size(); ++i) {
    ASSERT_NEAR(twice[i], 2 * once[i], 1e-12 * std::max(1.0, std::abs(once[i]))) << i;
  }
}

// With activations in bfloat16 every value kept is off by 2^-9 of itself at most, and a gradient of
// these two layers comes out of some ten of them in a row. Head sizes here are those that vector
// code does not take, and once one that it does.
TEST_P(ModelGradientTest, InBf16StaysWithinItsRounding) {
  constexpr double kTolerance = 10.0 / 512;
  constexpr std::int64_t kLength = 7;
  ModelConfig wide = GetParam().model;
  wide.head_dim = 16;
  for (const ModelConfig& config : {GetParam().model, wide}) {
    if (config.arch == "gpt2" && config.head_dim != GetParam().model.head_dim) continue;
    const ModelLayout layout(model_shape(config, kLength));
    const Rng rng{9, Stream::kTestData};
    std::vector<float> weights(static_cast<std::size_t>(layout.elements()));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(0.3 * rng.normal(i));
    }
    const std::vector<std::int32_t> inputs = {1, 4, 2, 9, 0, 3, 8};
    const std::vector<std::int32_t> targets = {4, 2, 9, 0, 3, 8, 5};
    const TokenBatch batch{inputs, targets, 1, kLength};
    kernels::ThreadTeam team(2);
    FlatWeights<float> flat(layout, weights.data());
    std::vector<float> gradients[2];
    for (const bool bf16 : {false, true}) {
      LanguageModel<float> model(layout, kLength, LanguageModel<float>::Purpose::kTraining, bf16);
      gradients[bf16].assign(weights.size(), 0.0f);
      static_cast<void>(
          model.loss_and_gradients(team, flat, batch, {.gradients = gradients[bf16].data()}));
    }
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      error += std::pow(static_cast<double>(gradients[1][i] - gradients[0][i]), 2);
      norm += std::pow(static_cast<double>(gradients[0][i]), 2);
    }
    EXPECT_LE(std::sqrt(error / norm), kTolerance);
    EXPECT_GT(error, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGradientTest, testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace isthmus::this_file
