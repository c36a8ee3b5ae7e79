// SPDX-License-Identifier: Apache-2.0
// What passes and updates go through in memory, and the time of it, by hand.
#include "plan/mesh_passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/mesh_time.h"

namespace isthmus::plan::this_file {
namespace {
constexpr double kD = 64, kKeys = 16, kFeedForward = 192, kVocab = 512, kLayers = 4;
constexpr double kContext = 32, kSequences = 8, kRows = kContext * kSequences;

MeshWorkload workload(const std::string& arch) {
  ModelConfig model;
  model.arch = arch;
  model.layers = static_cast<std::int64_t>(kLayers);
  model.d_model = static_cast<std::int64_t>(kD);
  model.heads = 8;
  model.kv_heads = arch == "gpt2" ? 8 : 2;
  model.d_ff = static_cast<std::int64_t>(kFeedForward);
  model.vocab = static_cast<std::int64_t>(kVocab);
  return {model_shape(model, static_cast<std::int64_t>(kContext)), InnerConfig{},
          static_cast<std::int64_t>(kContext), static_cast<std::int64_t>(kSequences)};
}

MeshChoice mesh(int tp, int pp, int dp) {
  MeshChoice choice;
  choice.tp = tp;
  choice.pp = pp;
  choice.dp = dp;
  return choice;
}

PassBytes passes_of(const MeshWorkload& w, const MeshChoice& choice, int pipeline_rank = 0) {
  const ModelLayout layout(w.shape);
  const MeshShare share = mesh_share(layout, choice, pipeline_rank);
  return pass_bytes(w, choice, share.stages.front());
}

MeshTime time_of(const MeshWorkload& w, const MeshChoice& choice, const MeshMachine& machine) {
  return mesh_time(choice, rank_costs(ModelLayout(w.shape), w, choice), machine);
}

/// Links that take no time.
MeshMachine machine(double flops, double attention, double memory) {
  MeshMachine machine;
  machine.flops_per_s = flops;
  machine.attention_flops_per_s = attention;
  machine.memory_bytes_per_s = memory;
  machine.links = {{"node", 0, 1e30, 0}};
  return machine;
}

TEST(MeshPasses, GoThroughTheArraysOfALayerOnce) {
  // Values of a token, fp32. A norm: x, y; backward dy, x, and the stream's gradient twice.
  const double norms = 2 * 2 * kD, norms_back = 2 * 4 * kD;
  const double rotary = 2 * (kD + kKeys);
  // Outside the layers: the embedding; the final norm both ways and three times the logits.
  const double before = 2 * kD, before_back = 3 * kD, after = 6 * kD + 3 * kVocab;
  const PassBytes llama = passes_of(workload("llama"), mesh(1, 1, 1));
  EXPECT_DOUBLE_EQ(llama.forward,
                   4 * kRows * (kLayers * (norms + rotary + 3 * kFeedForward) + before + after));
  EXPECT_DOUBLE_EQ(llama.backward,
                   4 * kRows * (kLayers * (norms_back + rotary + 5 * kFeedForward) + before_back));
  EXPECT_EQ(llama.again, 0);
  const PassBytes gpt2 = passes_of(workload("gpt2"), mesh(1, 1, 1));
  EXPECT_DOUBLE_EQ(gpt2.forward, 4 * kRows * (kLayers * (norms + kFeedForward) + before + after));
  EXPECT_DOUBLE_EQ(gpt2.backward,
                   4 * kRows * (kLayers * (norms_back + kFeedForward) + before_back));
}

TEST(MeshPasses, TensorParallelRanksRepeatNormsUnlessTheSequenceIsSplit) {
  const MeshWorkload w = workload("gpt2");
  MeshChoice choice = mesh(2, 1, 1);
  const double shared = kLayers * kFeedForward / 2 + 3 * kVocab / 2, stream = 2 * kD;
  const double norms = kLayers * 4 * kD + 6 * kD;
  EXPECT_DOUBLE_EQ(passes_of(w, choice).forward, 4 * kRows * (shared + stream + norms));
  choice.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(passes_of(w, choice).forward, 4 * kRows * (shared + stream + norms / 2));
}

TEST(MeshPasses, RecomputationGoesThroughAllLayersButTheLastAgain) {
  const MeshWorkload w = workload("gpt2");
  MeshChoice choice = mesh(1, 1, 1);
  choice.recompute = Recompute::kFull;
  EXPECT_DOUBLE_EQ(passes_of(w, choice).again, 4 * kRows * (kLayers - 1) * (4 * kD + kFeedForward));
}

TEST(MeshPasses, ASelectiveOneGoesThroughNormsAndTheActivationOfEachLayerAgain) {
  MeshChoice choice = mesh(1, 1, 1);
  choice.recompute = Recompute::kSelective;
  const double norms = 4 * kD;
  // Of the backward pass of a GPT-2 layer: the sum read, GELU's result and its slope written.
  const double sum = kFeedForward, result = kFeedForward, slope = kFeedForward;
  EXPECT_DOUBLE_EQ(passes_of(workload("gpt2"), choice).again,
                   4 * kRows * kLayers * (norms + sum + result + slope));
  const double gate = kFeedForward, up = kFeedForward;
  EXPECT_DOUBLE_EQ(passes_of(workload("llama"), choice).again,
                   4 * kRows * kLayers * (norms + gate + up + result));
  choice.bf16 = true;  // GELU of what was rounded would have other bits: it is kept
  EXPECT_DOUBLE_EQ(passes_of(workload("gpt2"), choice).again, kRows * kLayers * 2 * (4 + 2) * kD);
}

// The product that leads there then writes the sum alone, and a pass of its own reads that and
// writes GELU's result: one array more than the slope that the product writes otherwise.
TEST(MeshPasses, GeluThatIsMadeAgainIsAForwardPassOfItsOwn) {
  const auto forward = [](const std::string& arch, Recompute recompute, bool bf16) {
    MeshChoice choice = mesh(2, 1, 1);
    choice.recompute = recompute;
    choice.bf16 = bf16;
    return passes_of(workload(arch), choice);
  };
  for (const std::string& arch : {std::string("gpt2"), std::string("llama")}) {
    for (const bool bf16 : {false, true}) {
      const PassBytes kept = forward(arch, Recompute::kNone, bf16);
      const PassBytes selective = forward(arch, Recompute::kSelective, bf16);
      const double own_pass = arch == "gpt2" && !bf16 ? kFeedForward / 2 : 0;
      EXPECT_DOUBLE_EQ(selective.forward - kept.forward, 4 * kRows * kLayers * own_pass)
          << arch << (bf16 ? " bf16" : " fp32");
      EXPECT_EQ(selective.backward, kept.backward) << arch;
      EXPECT_EQ(forward(arch, Recompute::kFull, bf16).forward, kept.forward) << arch;
    }
  }
}

TEST(MeshPasses, Bf16HalvesWhatIsNotTheStream) {
  const MeshWorkload w = workload("gpt2");
  MeshChoice choice = mesh(1, 1, 1);
  const double whole = passes_of(w, choice).forward;
  choice.bf16 = true;
  // What the layers' and the final norm's forward parts write, the final norm's gradient, slopes.
  const double wide = kLayers * (2 * kD + kFeedForward) + 2 * kD;
  EXPECT_DOUBLE_EQ(passes_of(w, choice).forward, whole - 2 * kRows * wide);
}

TEST(MeshPasses, OneRanksStepIsItsParts) {
  const MeshWorkload w = workload("llama");
  const MeshChoice choice = mesh(1, 1, 1);
  const auto values = static_cast<double>(ModelLayout(w.shape).elements());
  const PassBytes bytes = passes_of(w, choice);
  const double attention = 3 * kRows * kLayers * 4 * kD * kContext;
  const double products = rank_cost(w, choice, 0).flops - attention;
  const MeshTime time = time_of(w, choice, machine(1e9, 5e8, 1e8));
  EXPECT_NEAR(time.compute,
              products / 1e9 + attention / 5e8 + (bytes.forward + bytes.backward) / 1e8, 1e-9);
  // AdamW: weights and two moments read and written, gradients read and cleared.
  EXPECT_NEAR(time.update, 8 * 4 * values / 1e8, 1e-9);
  EXPECT_NEAR(time.step, time.compute + time.update, 1e-9);
  // Where neither rate is given, neither takes time of its own.
  const MeshTime plain = time_of(w, choice, machine(1e9, 0, 0));
  EXPECT_DOUBLE_EQ(plain.step, rank_cost(w, choice, 0).flops / 1e9);
  EXPECT_EQ(plain.update, 0);
}

TEST(MeshPasses, RecomputedAttentionTakesAttentionsRate) {
  const MeshWorkload w = workload("llama");
  MeshChoice choice = mesh(1, 1, 1);
  const double kept = time_of(w, choice, machine(1e30, 1e9, 0)).step;
  choice.recompute = Recompute::kFull;
  EXPECT_NEAR(time_of(w, choice, machine(1e30, 1e9, 0)).step - kept,
              kRows * (kLayers - 1) * 4 * kD * kContext / 1e9, 1e-9);
}

TEST(MeshPasses, RanksShareTheUpdate) {
  MeshWorkload w = workload("llama");
  const auto values = static_cast<double>(ModelLayout(w.shape).elements());
  const auto update = [&](const MeshChoice& choice) {
    return time_of(w, choice, machine(1e9, 0, 1)).update;
  };
  EXPECT_DOUBLE_EQ(update(mesh(2, 1, 1)), 32 * values / 2);
  EXPECT_DOUBLE_EQ(update(mesh(1, 2, 2)), 32 * values / 4);
  MeshChoice sharded = mesh(1, 1, 2);
  sharded.zero = 1;
  EXPECT_DOUBLE_EQ(update(sharded), 32 * values / 2);
  sharded.pp = 2;  // each stage its own: the largest counts
  const double largest = static_cast<double>(
      std::max(rank_cost(w, sharded, 0).elements, rank_cost(w, sharded, 1).elements));
  EXPECT_DOUBLE_EQ(update(sharded), 32 * largest / 2);
  w.inner.optimizer = "sgd";
  w.inner.momentum = 0;
  EXPECT_DOUBLE_EQ(update(mesh(1, 1, 1)), 16 * values);
}

TEST(MeshPasses, PipelineStagesTakeTheirOwnPassesTime) {
  // No time but what memory takes: one micro-batch through two stages.
  const MeshWorkload w = workload("gpt2");
  MeshChoice choice = mesh(1, 2, 1);
  choice.micro_batches = 1;
  const MeshTime time = time_of(w, choice, machine(1e30, 0, 1e6));
  double all = 0;
  for (const int rank : {0, 1}) {
    const PassBytes bytes = passes_of(w, choice, rank);
    all += bytes.forward + bytes.backward;
  }
  EXPECT_NEAR(time.step - time.update, all / 1e6, 1e-9);  // one after another
}

}  // namespace
}  // namespace isthmus::plan::this_file
