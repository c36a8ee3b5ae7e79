// SPDX-License-Identifier: Apache-2.0
// Adapters against their definition: central differences in double, the merged weights, and a loop
// that trains them beside a frozen model.
#include "inner/model/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "inner/inner_test.h"
#include "inner/loop/lora_loop.h"
#include "inner/loop/model_cost.h"
#include "inner/model/frozen_weights.h"
#include "inner/model/model.h"
#include "inner/model_families.h"
#include "kernels/bf16.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kSequences = 2;
constexpr std::int64_t kLength = 7;

ModelConfig with_adapters(std::vector<std::string> targets) {
  ModelConfig model{.arch = "llama",
                    .layers = 2,
                    .d_model = 12,
                    .heads = 6,
                    .kv_heads = 2,
                    .d_ff = 20,
                    .vocab = 11,
                    .context = 9,
                    .tied = true};
  model.lora = {.rank = 3, .alpha = 5, .targets = std::move(targets)};
  return model;
}

ModelConfig family(const std::string& name, std::vector<std::string> targets) {
  ModelConfig model = with_adapters(std::move(targets));
  model.head_dim = 8;
  return of_family(model, name);
}

struct LoraCase {
  std::string name;
  ModelConfig model;
  LanguageModel<double>::Purpose purpose = LanguageModel<double>::Purpose::kTraining;
};

void PrintTo(const LoraCase& c, std::ostream* out) { *out << c.name; }

std::vector<LoraCase> cases() {
  using Purpose = LanguageModel<double>::Purpose;
  std::vector<LoraCase> all = {{"AllLinear", with_adapters({"all-linear"})},
                               {"QueryValue", with_adapters({"q_proj", "v_proj"})},
                               {"Down", with_adapters({"down_proj"})},
                               {"QueryKeyNorm", with_adapters({"all-linear"})},
                               {"Selective", with_adapters({"all-linear"}), Purpose::kSelective},
                               {"Recompute", with_adapters({"all-linear"}), Purpose::kRecompute}};
  all[3].model.qk_norm = true;
  for (const std::string& name : family_names()) {
    all.push_back({name, family(name, {"all-linear"})});
    std::ranges::replace(all.back().name, '-', '_');
  }
  all.push_back({"Phi3Fused", family("phi3", {"qkv_proj", "gate_up_proj"})});
  all.push_back(
      {"NeoxSome", family("neox", {"query_key_value", "dense_4h_to_h"}), Purpose::kSelective});
  return all;
}

/// A frozen model and adapters with random values, none of them zero.
struct Scene {
  explicit Scene(const LoraCase& c)
      : adapter_layout(model_shape(c.model, kLength)),
        base_layout(without_lora(adapter_layout.shape())),
        weights(random(base_layout.elements(), 0.4, 1)),
        adapters(random(adapter_layout.elements(), 0.3, 2)) {
    const Rng rng{7, Stream::kTestData};
    const auto vocab = static_cast<std::uint64_t>(base_layout.shape().vocab);
    for (std::uint64_t i = 0; i < kSequences * kLength; ++i) {
      inputs.push_back(static_cast<std::int32_t>(rng.below(vocab, i, 3)));
      targets.push_back(static_cast<std::int32_t>(rng.below(vocab, i, 4)));
    }
  }
  static std::vector<double> random(std::int64_t count, double deviation, std::uint32_t sub) {
    const Rng rng{7, Stream::kTestData};
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(deviation * rng.normal(static_cast<std::uint64_t>(i), sub));
    }
    return values;
  }
  [[nodiscard]] TokenBatch batch() const { return {inputs, targets, kSequences, kLength}; }

  ModelLayout adapter_layout, base_layout;
  std::vector<double> weights, adapters;
  std::vector<std::int32_t> inputs, targets;
};

class LoraTest : public testing::TestWithParam<LoraCase> {};

TEST_P(LoraTest, GradientsEqualCentralDifferences) {
  Scene scene(GetParam());
  kernels::ThreadTeam team(1);
  LanguageModel<double> model(scene.base_layout, kSequences * kLength, GetParam().purpose);
  FlatWeights<double> flat(scene.base_layout, scene.weights.data());
  std::vector<double> gradients(scene.adapters.size(), 0.0);
  Adapters<double> adapters(scene.adapter_layout, kSequences * kLength, scene.adapters.data(),
                            gradients.data());
  model.train_adapters(&adapters);
  const double scale = 1.0 / static_cast<double>(kSequences * kLength);
  BackwardOptions<double> options;
  options.gradient_scale = scale;
  static_cast<void>(model.loss_and_gradients(team, flat, scene.batch(), options));
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 1e-7;
  for (std::size_t i = 0; i < gradients.size(); i += 5) {
    const double kept = scene.adapters[i];
    const auto objective = [&](double value) {
      scene.adapters[i] = value;
      return scale * model.loss(team, flat, scene.batch()).loss;
    };
    const double expected = (objective(kept + kStep) - objective(kept - kStep)) / (2 * kStep);
    scene.adapters[i] = kept;
    EXPECT_NEAR(gradients[i], expected, kTolerance * std::max(1.0, std::abs(expected))) << i;
  }
}

/// W += alpha / r B A in every product that has an adapter.
void merge(Scene& scene) {
  const LoraShape& lora = scene.adapter_layout.shape().lora;
  const std::vector<TensorInfo>& all = scene.adapter_layout.tensors();
  for (std::size_t t = 0; t < all.size(); t += 2) {
    const std::size_t begin = std::string("base_model.model.").size();
    const std::string name =
        all[t].name.substr(begin, all[t].name.find(".lora_A") - begin) + ".weight";
    const auto base = std::ranges::find(scene.base_layout.tensors(), name, &TensorInfo::name);
    ASSERT_NE(base, scene.base_layout.tensors().end()) << name;
    const std::int64_t out = base->shape[0], in = base->shape[1], rank = lora.rank;
    const double* const a = scene.adapters.data() + all[t].elements.begin;
    const double* const b = scene.adapters.data() + all[t + 1].elements.begin;
    double* const w = scene.weights.data() + base->elements.begin;
    for (std::int64_t i = 0; i < out; ++i) {
      for (std::int64_t j = 0; j < in; ++j) {
        for (std::int64_t k = 0; k < rank; ++k) {
          w[i * in + j] += lora.alpha / static_cast<double>(rank) * b[i * rank + k] * a[k * in + j];
        }
      }
    }
  }
}

TEST_P(LoraTest, AddsWhatMergedWeightsSay) {
  Scene scene(GetParam());
  kernels::ThreadTeam team(1);
  LanguageModel<double> model(scene.base_layout, kSequences * kLength,
                              LanguageModel<double>::Purpose::kInference);
  FlatWeights<double> flat(scene.base_layout, scene.weights.data());
  const double plain = model.loss(team, flat, scene.batch()).loss;
  Adapters<double> adapters(scene.adapter_layout, kSequences * kLength, scene.adapters.data(),
                            nullptr);
  model.train_adapters(&adapters);
  const double adapted = model.loss(team, flat, scene.batch()).loss;
  EXPECT_GT(std::abs(adapted - plain), 1e-3);

  merge(scene);
  LanguageModel<double> merged(scene.base_layout, kSequences * kLength,
                               LanguageModel<double>::Purpose::kInference);
  EXPECT_NEAR(merged.loss(team, flat, scene.batch()).loss, adapted, 1e-10 * adapted);
}

INSTANTIATE_TEST_SUITE_P(Cases, LoraTest, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

LanguageModelOptions loop_options(const std::string& base = "fp32", bool bf16 = false) {
  LanguageModelOptions options;
  options.model = with_adapters({"all-linear"});
  options.model.lora.base = base;
  options.inner.lr = 1e-2;
  options.context = kLength;
  options.sequences = 4;
  options.total_steps = 20;
  options.threads = 2;
  options.bf16 = bf16;
  return options;
}

void fill_base(LoraLoop& loop) {
  const Rng rng{5, Stream::kTestData};
  for (std::size_t i = 0; i < loop.base().size(); ++i) {
    std::vector<float> values;
    for (std::int64_t k = 0; k < loop.base()[i].elements.size(); ++k) {
      const auto at = static_cast<std::uint64_t>(loop.base()[i].elements.begin + k);
      values.push_back(static_cast<float>(0.2 * rng.normal(at)));
    }
    loop.store_base(i, 0, values);
  }
}

std::vector<float> adapter_values(InnerLoop& loop) {
  std::vector<float> values;
  for (const Parameter& each : loop.parameters()) {
    values.insert(values.end(), each.values.begin(), each.values.end());
  }
  return values;
}

TEST(LoraLoop, TrainsAdaptersOfAFrozenModel) {
  RandomBatches batches(11, 4, kLength);
  LoraLoop loop(loop_options(), [&](StepIndex) { return batches.at(StepIndex(1)); });
  fill_base(loop);
  // B is zero, so the adapted model begins as its base.
  for (const Parameter& each : loop.parameters()) {
    const bool is_b = each.name.ends_with("lora_B.weight");
    for (const float value : each.values) {
      ASSERT_EQ(value == 0, is_b) << each.name;
      ASSERT_LE(std::abs(value), 1 / std::sqrt(static_cast<float>(each.shape[1])));
    }
  }
  const double first = loop.train_step(StepIndex(1)).loss;
  double last = first;
  for (int t = 2; t <= 20; ++t) last = loop.train_step(StepIndex(t)).loss;
  EXPECT_LT(last, first - 0.1);
}

TEST(LoraLoop, IsTheSameWithAnyThreadsAndMicroBatches) {
  RandomBatches batches(11, 4, kLength);
  const auto trained = [&](int threads, std::int64_t micro_batches, Recompute recompute) {
    LanguageModelOptions options = loop_options();
    options.threads = threads;
    options.micro_batches = micro_batches;
    options.recompute = recompute;
    LoraLoop loop(options, batches.provider());
    fill_base(loop);
    for (int t = 1; t <= 5; ++t) static_cast<void>(loop.train_step(StepIndex(t)));
    return adapter_values(loop);
  };
  const std::vector<float> one = trained(1, 1, Recompute::kNone);
  EXPECT_EQ(one, trained(3, 1, Recompute::kNone));
  EXPECT_EQ(one, trained(2, 1, Recompute::kFull));
  EXPECT_EQ(one, trained(2, 1, Recompute::kSelective));
  const std::vector<float> parts = trained(2, 2, Recompute::kNone);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], parts[i], 1e-3) << i;
}

TEST(LoraLoop, GoesOnFromItsState) {
  RandomBatches batches(11, 4, kLength);
  LoraLoop whole(loop_options(), batches.provider());
  fill_base(whole);
  for (int t = 1; t <= 3; ++t) static_cast<void>(whole.train_step(StepIndex(t)));
  MemoryState state;
  whole.save(state);
  LoraLoop second(loop_options(), batches.provider());
  fill_base(second);
  for (std::size_t i = 0; i < second.parameters().size(); ++i) {
    std::ranges::copy(whole.parameters()[i].values, second.parameters()[i].values.begin());
  }
  second.load(state);
  for (int t = 4; t <= 6; ++t) {
    EXPECT_EQ(whole.train_step(StepIndex(t)).loss, second.train_step(StepIndex(t)).loss) << t;
  }
  EXPECT_EQ(adapter_values(whole), adapter_values(second));
}

TEST(LoraLoop, NarrowBasesAndProductsAreNear) {
  RandomBatches batches(11, 4, kLength);
  const auto losses = [&](const std::string& base, bool bf16) {
    LoraLoop loop(loop_options(base, bf16), batches.provider());
    fill_base(loop);
    std::vector<double> all;
    for (int t = 1; t <= 10; ++t) all.push_back(loop.train_step(StepIndex(t)).loss);
    return all;
  };
  const std::vector<double> wide = losses("fp32", false);
  const auto nearest = [&](const std::vector<double>& other) {
    double most = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      most = std::max(most, std::abs(wide[i] - other[i]));
    }
    return most;
  };
  EXPECT_LT(nearest(losses("bf16", false)), 0.02);
  EXPECT_LT(nearest(losses("fp32", true)), 0.05);
  EXPECT_LT(nearest(losses("nf4", false)), 0.3);
  EXPECT_GT(nearest(losses("nf4", false)), 1e-4);  // it is another base
}

TEST(LoraLoop, RefusesAMesh) {
  LanguageModelOptions options = loop_options();
  options.mesh.dp = 2;
  EXPECT_THROW(LoraLoop(options, {}), ConfigError);
}

TEST(FrozenWeights, HoldWhatTheirStorageRoundsTo) {
  const ModelLayout layout(without_lora(model_shape(with_adapters({"all-linear"}), kLength)));
  kernels::ThreadTeam team(2);
  FrozenWeights wide(layout, team, "fp32");
  FrozenWeights half(layout, team, "bf16");
  const Rng rng{9, Stream::kTestData};
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < layout.tensors()[t].elements.size(); ++i) {
      values.push_back(static_cast<float>(
          rng.normal(static_cast<std::uint64_t>(layout.tensors()[t].elements.begin + i))));
    }
    wide.store(t, 0, values);
    half.store(t, 0, values);
  }
  for (std::int64_t l = 0; l < layout.shape().layers; ++l) {
    const float* const exact = wide.layer(l);
    const float* const rounded = half.layer(l);
    const std::size_t first = layout.first_tensor(l);
    for (std::size_t t = first; t < first + layout.tensors_per_layer(); ++t) {
      const TensorInfo& info = layout.tensors()[t];
      const std::int64_t begin = info.elements.begin - layout.layer_elements(l).begin;
      for (std::int64_t i = begin; i < begin + info.elements.size(); ++i) {
        const float expected =
            info.shape.size() < 2 ? exact[i] : static_cast<float>(kernels::Bf16(exact[i]));
        ASSERT_EQ(rounded[i], expected) << info.name;
      }
    }
  }
  const std::vector<float> whole(half.tensor(0),
                                 half.tensor(0) + layout.tensors()[0].elements.size());
  const std::int64_t columns = layout.shape().d_model;
  const float* const rows = half.rows(0, 3, 2);
  for (std::int64_t i = 0; i < 2 * columns; ++i)
    ASSERT_EQ(rows[i], whole[static_cast<std::size_t>(3 * columns + i)]);
  EXPECT_THROW(FrozenWeights(layout, team, "fp8"), ConfigError);
  EXPECT_LT(FrozenWeights::bytes(layout, "nf4"), FrozenWeights::bytes(layout, "bf16"));
}

// Counted by hand: per layer 1,104 weights of matrices and 24 of norms, 144 for table and last
// norm.
TEST(ModelCost, OfAdaptersHasNoGradientsOfFrozenWeightsAndAllOfAttention) {
  const ModelLayout layout(model_shape(with_adapters({"all-linear"}), kLength));
  constexpr double kFrozen = 2 * (1104 + 24) + 144;
  constexpr double kAdapters = 2 * 3 * (24 + 16 + 16 + 24 + 32 + 32 + 32);
  constexpr double kAttention = 12.0 * 2 * 12 * kLength;
  EXPECT_EQ(training_flops_per_token(layout, kLength), 4 * kFrozen + 6 * kAdapters + kAttention);
}

// Files are read a few tiles at a time.
TEST(FrozenWeights, StoredInPartsAreThoseStoredAtOnce) {
  ModelConfig model = with_adapters({"all-linear"});
  model.vocab = 1000;
  model.d_ff = 700;
  const ModelLayout layout(without_lora(model_shape(model, kLength)));
  ASSERT_GT(layout.tensors()[0].elements.size(), static_cast<std::int64_t>(2 * kTileValues));
  kernels::ThreadTeam team(2);
  for (const char* const storage : {"fp32", "bf16", "nf4"}) {
    FrozenWeights at_once(layout, team, storage);
    FrozenWeights in_parts(layout, team, storage);
    const Rng rng{11, Stream::kTestData};
    for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < layout.tensors()[t].elements.size(); ++i) {
        values.push_back(static_cast<float>(
            rng.normal(static_cast<std::uint64_t>(layout.tensors()[t].elements.begin + i))));
      }
      at_once.store(t, 0, values);
      for (std::size_t first = 0; first < values.size(); first += kTileValues) {
        const std::size_t count = std::min(kTileValues, values.size() - first);
        in_parts.store(t, static_cast<std::int64_t>(first),
                       std::span(values).subspan(first, count));
      }
    }
    EXPECT_EQ(in_parts.held_bytes(), at_once.held_bytes()) << storage;
    for (std::int64_t l = 0; l < layout.shape().layers; ++l) {
      const auto n = static_cast<std::size_t>(layout.layer_elements(l).size());
      EXPECT_TRUE(
          std::ranges::equal(std::span(in_parts.layer(l), n), std::span(at_once.layer(l), n)))
          << storage << " layer " << l;
    }
    const auto n = static_cast<std::size_t>(layout.tensors()[0].elements.size());
    EXPECT_TRUE(
        std::ranges::equal(std::span(in_parts.tensor(0), n), std::span(at_once.tensor(0), n)))
        << storage;
  }
}

}  // namespace
}  // namespace isthmus::this_file
