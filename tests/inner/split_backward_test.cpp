// SPDX-License-Identifier: Apache-2.0
// Backward passes in two parts, and zb-h1, which runs them: the oracle is the whole pass, bit for
// bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "config/schema/recompute.h"
#include "core/base/rng.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh_test.h"
#include "inner/model/model.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::this_file {
namespace {

// --- one model

struct SplitCase {
  std::string name;
  ModelConfig model;
};

void PrintTo(const SplitCase& c, std::ostream* out) { *out << c.name; }

std::vector<SplitCase> split_cases() {
  std::vector<SplitCase> all;
  for (const char* name : {"gpt2", "llama", "llama-tied", "llama-grouped"}) {
    all.push_back({name, model_of(name).model});
    all.push_back({std::string(name) + " narrow", model_of(name).model});
    all.back().model.d_ff = 24;  // less than queries, keys and values take
  }
  for (const std::string& family : family_names()) {
    all.push_back({family, model_of(family).model});
  }
  all.push_back({"llama wide heads", model_of("llama").model});
  all.back().model.head_dim = 48;  // wider together than the stream and the feed-forward layer
  all.back().model.d_ff = 64;
  return all;
}

constexpr int kBatches = 3;  // two summands have the same sum in either order

/// Gradients of kBatches micro-batches, all backward passes after all forward passes.
template <typename Real>
std::vector<Real> gradients_of(const ModelLayout& layout,
                               typename LanguageModel<Real>::Purpose purpose, bool bf16,
                               std::span<const int> weight_order) {
  using Model = LanguageModel<Real>;
  constexpr std::int64_t kSequences = 2, kLength = 9;
  std::vector<Real> weights(static_cast<std::size_t>(layout.elements()));
  const Rng rng{7, Stream::kTestData};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<Real>(0.3 * rng.normal(i));
  }
  std::vector<Real> gradients(weights.size(), Real{0});
  kernels::ThreadTeam team(2);
  FlatWeights<Real> flat(layout, weights.data());
  const BackwardOptions<Real> options{.gradient_scale = 0.01, .gradients = gradients.data()};
  const Pass pass{team, kSequences, kLength};
  std::vector<std::unique_ptr<Model>> models;
  std::vector<RandomBatches> batches(kBatches, RandomBatches(kVocab, kSequences, kLength));
  for (int i = 0; i < kBatches; ++i) {
    const TokenBatch batch = batches[static_cast<std::size_t>(i)].at(StepIndex(i + 1));
    models.push_back(std::make_unique<Model>(layout, kSequences * kLength, purpose, bf16));
    models.back()->stage_forward(pass, flat, batch.inputs.data(), true);
    static_cast<void>(models.back()->stage_head(pass, flat, batch, &options));
    models.back()->stage_backward(pass, flat, batch.inputs.data(), options);
  }
  if (purpose != Model::Purpose::kSplitBackward) return gradients;
  for (const int i : weight_order) {
    models[static_cast<std::size_t>(i)]->stage_backward_weight(pass, options);
  }
  return gradients;
}

constexpr std::array kAscending = {0, 1, 2};
constexpr std::array kDescending = {2, 1, 0};

class SplitBackwardTest : public testing::TestWithParam<SplitCase> {
 protected:
  using Purpose = LanguageModel<float>::Purpose;
  using DoublePurpose = LanguageModel<double>::Purpose;
  const ModelLayout layout_{model_shape(GetParam().model, 9)};
};

TEST_P(SplitBackwardTest, HasTheBitsOfTheWholePass) {
  for (const bool bf16 : {false, true}) {
    EXPECT_EQ(gradients_of<float>(layout_, Purpose::kSplitBackward, bf16, kAscending),
              gradients_of<float>(layout_, Purpose::kTraining, bf16, {}))
        << (bf16 ? "bf16" : "fp32");
  }
  EXPECT_EQ(gradients_of<double>(layout_, DoublePurpose::kSplitBackward, false, kAscending),
            gradients_of<double>(layout_, DoublePurpose::kTraining, false, {}));
}

// The other way to pass backward, of the same models.
TEST_P(SplitBackwardTest, SoHasOneThatMakesActivationsAgain) {
  for (const bool bf16 : {false, true}) {
    EXPECT_EQ(gradients_of<float>(layout_, Purpose::kSelective, bf16, {}),
              gradients_of<float>(layout_, Purpose::kTraining, bf16, {}))
        << (bf16 ? "bf16" : "fp32");
  }
  EXPECT_EQ(gradients_of<double>(layout_, DoublePurpose::kSelective, false, {}),
            gradients_of<double>(layout_, DoublePurpose::kTraining, false, {}));
}

TEST_P(SplitBackwardTest, AddsInTheOrderOfTheWeightPasses) {
  EXPECT_NE(gradients_of<float>(layout_, Purpose::kSplitBackward, false, kDescending),
            gradients_of<float>(layout_, Purpose::kTraining, false, {}));
}

INSTANTIATE_TEST_SUITE_P(Models, SplitBackwardTest, testing::ValuesIn(split_cases()),
                         [](const auto& at) {
                           std::string name = at.param.name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// --- meshes

class ZbH1Test : public testing::TestWithParam<std::tuple<const char*, bool, Case>> {};

TEST_P(ZbH1Test, HasTheBitsOf1f1b) {
  const auto& [name, bf16, c] = GetParam();
  LanguageModelOptions whole = on_mesh(model_of(name), c);
  whole.bf16 = bf16;
  LanguageModelOptions split = whole;
  split.schedule = PipelineKind::kZbH1;
  const Step expected = first_step(whole);
  const Step zb = first_step(split);
  EXPECT_EQ(zb.loss, expected.loss);
  EXPECT_EQ(zb.gradients, expected.gradients);
}

const Case kMeshes[] = {{"pp2", {.pp = 2}, 4},
                        {"pp4", {.pp = 4}, 8},
                        {"pp4 of 2 micro-batches", {.pp = 4}, 2},
                        {"tp2 pp2", {.tp = 2, .pp = 2}, 4},
                        {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 4},
                        {"tp2 pp2 split", {.tp = 2, .pp = 2, .sequence_parallel = true}, 8},
                        {"tp4 pp4 split", {.tp = 4, .pp = 4, .sequence_parallel = true}, 4}};
INSTANTIATE_TEST_SUITE_P(Meshes, ZbH1Test,
                         testing::Combine(testing::Values("gpt2", "llama", "llama-tied",
                                                          "llama-grouped", "llama-two-keys"),
                                          testing::Bool(), testing::ValuesIn(kMeshes)),
                         [](const auto& at) {
                           std::string name = std::string(std::get<0>(at.param)) +
                                              (std::get<1>(at.param) ? "Bf16" : "Fp32") +
                                              std::get<2>(at.param).name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(ZbH1, RefusesRecomputation) {
  for (const auto& [recompute, why] : {std::pair{Recompute::kSelective, "gradients lie over all"},
                                       {Recompute::kFull, "does not keep"}}) {
    LanguageModelOptions options =
        on_mesh(model_of("llama"), {"", {.pp = 2}, 4, PipelineKind::kZbH1});
    options.recompute = recompute;
    RandomBatches batches(kVocab, options.sequences, options.context);
    try {
      LanguageModelLoop loop(options, batches.provider());
      FAIL() << "accepted";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const std::string setting =
          fmt::format("train.recompute = \"{}\"", recompute_name(recompute));
      EXPECT_NE(text.find(setting), std::string::npos) << text;
      EXPECT_NE(text.find(why), std::string::npos) << text;
      EXPECT_NE(text.find("1f1b"), std::string::npos) << text;
    }
  }
}

// --- memory

/// What every rank of a mesh holds, and what was foreseen.
std::vector<std::pair<std::int64_t, std::int64_t>> held_and_foreseen(const std::string& name,
                                                                     const Case& c, bool bf16,
                                                                     Recompute recompute) {
  LanguageModelOptions loop = on_mesh(model_of(name), c);
  loop.bf16 = bf16;
  loop.recompute = recompute;
  const MeshOptions options = mesh_options(loop);
  const ModelLayout layout(model_shape(loop.model, loop.context));
  auto ranks = make_thread_communicators(c.mesh.ranks(), std::chrono::minutes(2));
  std::vector<std::pair<std::int64_t, std::int64_t>> bytes(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      const MeshRank rank(layout, options, *ranks[r], true);
      bytes[r] = {static_cast<std::int64_t>(rank.held_bytes()),
                  MeshRank::bytes(layout, options, static_cast<int>(r), true)};
    });
  }
  threads.clear();
  return bytes;
}

TEST(ZbH1, RanksHoldWhatIsForeseen) {
  constexpr std::int64_t kRounding = 64;  // of a buffer
  for (const char* name : {"gpt2", "llama-grouped"}) {
    for (const bool bf16 : {false, true}) {
      for (const auto& [kind, chunks, recompute] :
           {std::tuple{PipelineKind::k1F1B, 1, Recompute::kNone},
            {PipelineKind::k1F1B, 1, Recompute::kSelective},
            {PipelineKind::kZbH1, 1, Recompute::kNone},
            {PipelineKind::kInterleaved, 2, Recompute::kNone},
            {PipelineKind::kInterleaved, 2, Recompute::kSelective}}) {
        const MeshShape mesh{.tp = 2, .pp = 2, .sequence_parallel = bf16};
        const Case c{"", mesh, 4, kind, chunks};
        for (const auto& [held, foreseen] : held_and_foreseen(name, c, bf16, recompute)) {
          EXPECT_GE(held, foreseen) << name << pipeline_name(kind);
          EXPECT_LE(held, foreseen + 8 * kRounding) << name << pipeline_name(kind);
        }
      }
    }
  }
}

// Each rank has the micro-batches that the first one has under 1f1b, and costs only the scratch of
// one more: the gradient of the up projection's output or of queries, keys and values.
TEST(ZbH1, CostsScratchAloneBeyondTheFirstRankOf1f1b) {
  const LanguageModelOptions o = model_of("gpt2");
  const ModelLayout layout(model_shape(o.model, o.context));
  const auto bytes = [&](PipelineKind kind, int rank) {
    return MeshRank::bytes(layout, mesh_options(on_mesh(o, {"", {.pp = 4}, 8, kind})), rank);
  };
  constexpr std::int64_t kRows = 12, kWide = 4 * 32;  // one sample, one layer
  EXPECT_EQ(bytes(PipelineKind::kZbH1, 0) - bytes(PipelineKind::k1F1B, 0), kRows * kWide * 4);
  EXPECT_EQ(bytes(PipelineKind::kZbH1, 2), bytes(PipelineKind::kZbH1, 1));
}

}  // namespace
}  // namespace isthmus::this_file
