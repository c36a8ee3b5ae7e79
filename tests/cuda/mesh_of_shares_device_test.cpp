// SPDX-License-Identifier: Apache-2.0
// Ranks on devices that have shares of the layers (tp) or some of them (pp), against meshes of the
// same shape on the CPU and against one device.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cuda/mesh_case.h"
#include "inner/cuda/cuda_loop_memory.h"
#include "test_weight.h"

namespace isthmus::this_file {
namespace {
using testing::HasSubstr;

constexpr std::int64_t kShort = 5;    // tokens, since many steps are taken
constexpr double kCurveError = 1e-4;  // of 50 steps

struct MeshCase {
  const char* model;
  MeshShape mesh;
  int virtual_stages = 1;
  int steps = 6;
};

std::string name_of(const MeshCase& c) {
  const std::string model = c.model;
  return fmt::format("{}_{}x{}x{}{}", model == "llama+" ? "llama_grouped" : model, c.mesh.tp,
                     c.mesh.pp, c.mesh.dp, c.virtual_stages > 1 ? "_interleaved" : "");
}

[[nodiscard]] LanguageModelOptions options_of(const MeshCase& c) {
  LanguageModelOptions options = tiny_options(c.model);
  options.context = kShort;
  options.sequences = kMeshSequences;
  options.mesh = c.mesh;
  options.micro_batches = 2;
  if (c.virtual_stages > 1) {
    options.schedule = PipelineKind::kInterleaved;
    options.virtual_stages = c.virtual_stages;
    options.model.layers = 4;
  }
  return options;
}

class MeshOfShares : public cuda::DeviceTest, public testing::WithParamInterface<MeshCase> {
 protected:
  using Provider = BatchProvider;
  [[nodiscard]] std::unique_ptr<InnerLoop> mesh() {
    return make_cuda_mesh(options_, batches_.provider(), on_devices(options_.mesh.ranks()));
  }

  LanguageModelOptions options_ = options_of(GetParam());
  RandomBatches batches_{kVocab, kMeshSequences, kShort};
  RandomBatches other_batches_{kVocab, kMeshSequences, kShort};
};

// Of few meshes, since many steps are taken.
class StateOfShares : public MeshOfShares {};

void expect_near(const Trajectory& found, const Trajectory& expected, double error = kCurveError) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    const double loss = expected.losses[i];
    EXPECT_NEAR(found.losses[i], loss, error * loss) << "step " << i + 1;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 20 * error * expected.norms[i]) << i + 1;
  }
}

TEST_P(MeshOfShares, FollowsTheMeshOfTheCpu) {
  const auto devices = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  const int steps = std::min(GetParam().steps, testing_support::by_weight(10, 30));
  expect_near(train(*devices, 1, steps), train(cpu, 1, steps));
}

TEST_P(MeshOfShares, GradientsAreThoseOfTheCpu) {
  const auto devices = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  std::vector<std::size_t> announced;
  const InnerStep step =
      devices->gradients(StepIndex(1), [&](std::size_t i) { announced.push_back(i); });
  const InnerStep expected = cpu.gradients(StepIndex(1), {});
  EXPECT_NEAR(step.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_EQ(step.tokens, expected.tokens);
  EXPECT_EQ(announced.size(), devices->parameters().size());
  for (std::size_t i = 0; i < devices->parameters().size(); ++i) {
    EXPECT_LT(relative_error(devices->gradient(i), cpu.gradient(i)), 2e-5)
        << devices->parameters()[i].name;
  }
}

TEST_P(StateOfShares, InBf16StaysWithinItsRounding) {
  options_.bf16 = true;
  options_.recompute = Recompute::kFull;
  const auto devices = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  expect_near(train(*devices, 1, 4), train(cpu, 1, 4), 5e-3);
}

TEST_P(StateOfShares, GivesTheSameBitsAgainAndInRecomputation) {
  const Trajectory once = train(*mesh(), 1, 2);
  EXPECT_EQ(train(*mesh(), 1, 2), once);
  options_.recompute = Recompute::kFull;
  EXPECT_EQ(train(*mesh(), 1, 2), once);
}

TEST_P(StateOfShares, WhatOthersWriteIsGoneOnFromAndTheRestStays) {
  const auto devices = mesh();
  const auto straight = mesh();
  const std::vector<float> before = train(*straight, 1, 2).values;
  static_cast<void>(train(*devices, 1, 2));
  EXPECT_EQ(values_now(*devices), before);
  for (const int t : {3, 4}) {
    static_cast<void>(devices->train_step(StepIndex(t)));
    static_cast<void>(straight->train_step(StepIndex(t)));
  }
  // A part of all, which cuts tensors whose rest the ranks have, with the weights of before.
  const auto third = static_cast<std::int64_t>(before.size()) / 3;
  std::vector<float> expected = values_now(*straight);
  for (const Parameter& p : devices->parameters()) {
    for (std::int64_t i = std::max(third, p.elements.begin);
         i < std::min(2 * third, p.elements.end); ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_NE(expected[at], before[at]);
      expected[at] = before[at];
      p.values[static_cast<std::size_t>(i - p.elements.begin)] = before[at];
    }
  }
  devices->wrote_values({third, 2 * third});
  EXPECT_EQ(values_now(*devices), expected);
  set_values(*straight, expected);
  EXPECT_EQ(train(*devices, 5, 6), train(*straight, 5, 6));
}

TEST_P(StateOfShares, CheckpointsAreThoseOfAnyMesh) {
  const auto devices = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  const std::vector<float> values = train(*devices, 1, 3).values;
  static_cast<void>(train(cpu, 1, 1));
  MemoryState state;
  devices->save(state);
  cpu.load(state);
  set_values(cpu, values);
  const auto resumed = mesh();
  static_cast<void>(train(*resumed, 7, 7));
  resumed->load(state);
  set_values(*resumed, values);
  const Trajectory straight = train(*devices, 4, 6);
  EXPECT_EQ(train(*resumed, 4, 6), straight);
  expect_near(train(cpu, 4, 6), straight);
  MemoryState of_cpu;
  cpu.save(of_cpu);
  resumed->load(of_cpu);
  set_values(*resumed, all_values(cpu));
  expect_near(train(*resumed, 7, 8), train(cpu, 7, 8));
}

TEST_P(StateOfShares, WhatAnExchangePutIntoTheGradientsIsApplied) {
  const auto devices = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  for (InnerLoop* loop : {devices.get(), static_cast<InnerLoop*>(&cpu)}) {
    static_cast<void>(loop->gradients(StepIndex(1), {}));
    for (std::size_t i = 0; i < loop->parameters().size(); ++i) {
      std::ranges::fill(loop->gradient(i), 0.01f);
    }
  }
  const double norm = cpu.apply_gradients(StepIndex(1));
  EXPECT_NEAR(devices->apply_gradients(StepIndex(1)), norm, 1e-6 * norm);
  EXPECT_LT(relative_error(values_now(*devices), values_now(cpu)), 1e-6);
}

TEST_P(MeshOfShares, EvaluatesOwnWeightsAndOthersAndGoesOn) {
  const auto devices = mesh();
  const auto straight = mesh();
  LanguageModelLoop cpu(options_, other_batches_.provider());
  static_cast<void>(train(*devices, 1, 2));
  static_cast<void>(train(*straight, 1, 2));
  RandomBatches many(kVocab, 11, kShort - 1);
  const TokenBatch batch = many.at(StepIndex(1));
  const double others = cpu.loss(batch, LoopParameters(cpu.parameters()));
  EXPECT_NEAR(devices->loss(batch, LoopParameters(cpu.parameters())), others, 1e-5);
  set_values(cpu, values_now(*devices));
  EXPECT_NEAR(devices->loss(batch, LoopParameters(devices->parameters())),
              cpu.loss(batch, LoopParameters(cpu.parameters())), 1e-5);
  EXPECT_EQ(train(*devices, 3, 4), train(*straight, 3, 4));
}

TEST_P(StateOfShares, ADivergedStepNamesItselfAndChangesNothing) {
  const auto devices = mesh();
  const Trajectory begin = train(*devices, 1, 2);
  std::vector<float> broken = begin.values;
  std::fill_n(broken.end() - 32, 32, std::numeric_limits<float>::infinity());
  set_values(*devices, broken);
  EXPECT_THROW(static_cast<void>(devices->train_step(StepIndex(3))), RunError);
  EXPECT_EQ(values_now(*devices), broken);
  set_values(*devices, begin.values);
  EXPECT_EQ(train(*devices, 3, 4).values, train(*mesh(), 1, 4).values);
}

constexpr MeshCase kTensors{"llama+", {.tp = 4, .pp = 1, .dp = 1}};      // key heads are held twice
constexpr MeshCase kStages{"gpt2", {.tp = 1, .pp = 2, .dp = 1}, 1, 30};  // a tied table in two
constexpr MeshCase kAllKinds{"gpt2", {.tp = 2, .pp = 2, .dp = 2}};
constexpr MeshCase kCases[] = {
    kTensors,
    kStages,
    kAllKinds,
    {"gpt2", {.tp = 2, .pp = 1, .dp = 1}},
    {"llama+", {.tp = 2, .pp = 1, .dp = 1}, 1, 30},
    {"llama+", {.tp = 1, .pp = 2, .dp = 1}},
    {"gpt2", {.tp = 1, .pp = 2, .dp = 1}, 2},
};
INSTANTIATE_TEST_SUITE_P(Meshes, MeshOfShares, testing::ValuesIn(kCases),
                         [](const auto& param) { return name_of(param.param); });
INSTANTIATE_TEST_SUITE_P(Meshes, StateOfShares, testing::Values(kTensors, kStages, kAllKinds),
                         [](const auto& param) { return name_of(param.param); });

class MeshOfSharesRules : public cuda::DeviceTest {
 protected:
  LanguageModelOptions options_ = options_of({"gpt2", {.tp = 2, .pp = 1, .dp = 2}});
  RandomBatches batches_{kVocab, kMeshSequences, kShort};
};

TEST_F(MeshOfSharesRules, RefusesByNameWhatItDoesNotDo) {
  const auto refused = [&](const char* text, const auto& change) {
    LanguageModelOptions options = options_;
    change(options);
    try {
      static_cast<void>(
          make_cuda_mesh(options, batches_.provider(), on_devices(options.mesh.ranks())));
      ADD_FAILURE() << text << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused("parallel.zero = 1", [](LanguageModelOptions& o) { o.zero = 1; });
  refused("parallel.codec_tensor = \"int8\"",
          [](LanguageModelOptions& o) { o.rank_codecs.tensor = "int8"; });
  refused("parallel.sequence_parallel",
          [](LanguageModelOptions& o) { o.mesh.sequence_parallel = true; });
  refused("zb-h1", [](LanguageModelOptions& o) {
    o.mesh.pp = 2;
    o.schedule = PipelineKind::kZbH1;
  });
  refused("a mesh of 2 x 1 x 2 ranks", [](LanguageModelOptions& o) { o.forward_only = true; });
  refused("muon", [](LanguageModelOptions& o) { o.inner.optimizer = "muon"; });
}

}  // namespace
}  // namespace isthmus::this_file
