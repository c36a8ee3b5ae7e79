// SPDX-License-Identifier: Apache-2.0
// The oracle of a mesh is the same run on one rank (spec: the equivalence table of the inner loop):
// what only reorders whole sums is bitwise, what cuts a sum into other parts stays within rounding.
#include "inner/mesh_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "config/schema/recompute.h"
#include "inner/mesh/rank_layout.h"

namespace isthmus::this_file {
namespace {

// Of one step, relative to the largest value; sums of floats in another order.
constexpr double kLossRounding = 1e-6;
constexpr double kGradientRounding = 1e-5;
constexpr double kTrajectoryRounding = 1e-4;
std::vector<double> losses_of(const LanguageModelOptions& options, int steps) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  std::vector<double> losses;
  for (int t = 1; t <= steps; ++t) losses.push_back(loop.train_step(StepIndex(t)).loss);
  return losses;
}

class MeshTest : public testing::TestWithParam<std::tuple<const char*, Case>> {
 protected:
  LanguageModelOptions one_ = model_of(std::get<0>(GetParam()));
  LanguageModelOptions mesh_ = on_mesh(one_, std::get<1>(GetParam()));
};

TEST_P(MeshTest, FirstStepHasTheLossAndGradientsOfOneRank) {
  const Step one = first_step(one_);
  const Step mesh = first_step(mesh_);
  EXPECT_NEAR(mesh.loss, one.loss, kLossRounding * one.loss);
  EXPECT_LE(largest_difference_by_parameter(mesh, one), kGradientRounding);
}

TEST_P(MeshTest, TrainingFollowsOneRank) {
  const std::vector<double> one = losses_of(one_, 12);
  const std::vector<double> mesh = losses_of(mesh_, 12);
  for (std::size_t t = 0; t < one.size(); ++t) {
    EXPECT_NEAR(mesh[t], one[t], kTrajectoryRounding * one[t]) << "step " << t + 1;
  }
}

TEST_P(MeshTest, IsTheSameBitsEveryTime) {
  const Step once = first_step(mesh_);
  const Step again = first_step(mesh_);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_EQ(once.gradients, again.gradients);
}

TEST_P(MeshTest, LossOfAnySourceIsThatOfOneRank) {
  RandomBatches batches(kVocab, one_.sequences, one_.context);
  LanguageModelLoop one(one_, batches.provider());
  LanguageModelLoop mesh(mesh_, batches.provider());
  (void)one.train_step(StepIndex(1));
  const CopiedParameters source(one.parameters());
  RandomBatches longer(kVocab, 11, 9);  // neither the sequences nor the length of training
  const TokenBatch batch = longer.at(StepIndex(3));
  EXPECT_NEAR(mesh.loss(batch, source), one.loss(batch, source), 1e-6 * 5);
}

const Case kCases[] = {
    {"tp2", {.tp = 2}},
    {"tp4", {.tp = 4}},
    {"dp2", {.dp = 2}},
    {"dp4 of 2 micro-batches", {.dp = 4}, 2},
    {"pp2", {.pp = 2}, 4},
    {"pp4", {.pp = 4}, 8},
    {"pp2 gpipe", {.pp = 2}, 4, PipelineKind::kGpipe},
    {"pp2 interleaved", {.pp = 2}, 4, PipelineKind::kInterleaved, 2},
    {"pp4 zb-h1", {.pp = 4}, 8, PipelineKind::kZbH1},
    {"tp2 pp2 zb-h1", {.tp = 2, .pp = 2}, 4, PipelineKind::kZbH1},
    {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 2},
    {"tp4 dp2", {.tp = 4, .dp = 2}, 2},
};
const Case kSplitCases[] = {
    {"tp2 split", {.tp = 2, .sequence_parallel = true}},
    {"tp4 split", {.tp = 4, .sequence_parallel = true}},
    {"tp2 dp2 split of 2 micro-batches", {.tp = 2, .dp = 2, .sequence_parallel = true}, 2},
    {"tp2 pp2 dp2 split", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2},
    {"tp2 pp2 interleaved split",
     {.tp = 2, .pp = 2, .sequence_parallel = true},
     4,
     PipelineKind::kInterleaved,
     2},
};
const Case kCopyCases[] = {
    {"tp4 copies", {.tp = 4}},
    {"tp2 pp2 copies", {.tp = 2, .pp = 2}, 2},
    {"tp4 pp2 dp2 copies split", {.tp = 4, .pp = 2, .dp = 2, .sequence_parallel = true}, 2},
};

std::string case_name(const testing::TestParamInfo<MeshTest::ParamType>& at) {
  std::string name = std::string(std::get<0>(at.param)) + std::get<1>(at.param).name;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}
const auto kModels = testing::Values("gpt2", "llama", "llama-tied", "llama-grouped");
INSTANTIATE_TEST_SUITE_P(Meshes, MeshTest, testing::Combine(kModels, testing::ValuesIn(kCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(SplitSequences, MeshTest,
                         testing::Combine(kModels, testing::ValuesIn(kSplitCases)), case_name);
INSTANTIATE_TEST_SUITE_P(KeyCopies, MeshTest,
                         testing::Combine(testing::Values("llama-two-keys", "llama-one-key"),
                                          testing::ValuesIn(kCopyCases)),
                         case_name);

// Families whose ranks share what plain models do not have: biases, fused tensors, norms after the
// products, layers unlike their neighbours.
const Case kFamilyCases[] = {
    {"tp2", {.tp = 2}},
    {"pp2 zb-h1", {.pp = 2}, 4, PipelineKind::kZbH1},
    {"tp2 pp2 dp2 split", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2},
};
INSTANTIATE_TEST_SUITE_P(Families, MeshTest,
                         testing::Combine(testing::Values("llama-yarn", "mistral", "qwen2",
                                                          "smollm3", "phi3", "neox", "gemma2",
                                                          "gemma3"),
                                          testing::ValuesIn(kFamilyCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(WideNorms, MeshTest, testing::Values(std::tuple{"olmo2", kFamilyCases[1]}),
                         case_name);

TEST(Mesh, RefusesByNameWhatRanksCannotShareOfAFamily) {
  LanguageModelOptions options = model_of("olmo2");
  const auto problem = [&](int tp) {
    const ModelShape shape = model_shape(options.model, options.context);
    return tensor_parallel_problem(shape, {.tp = tp}, options.context).value_or("none");
  };
  EXPECT_EQ(problem(1), "none");
  EXPECT_THAT(problem(2), testing::AllOf(testing::HasSubstr("parallel.tp = 2"),
                                         testing::HasSubstr("olmo2 norms queries and keys")));
  options = model_of("phi3");
  options.model.kv_heads = 2;
  EXPECT_EQ(problem(2), "none");
  EXPECT_THAT(problem(4), testing::HasSubstr("the fused query, key and value tensors of phi3"));
}

// --- what must be the same bits

class PipelineBitsTest : public testing::TestWithParam<const char*> {};

/// The oracle of a pipeline: its mesh without stages, with as many micro-batches.
Case without_stages(Case c) {
  c.mesh.pp = c.virtual_stages = 1;
  c.schedule = PipelineKind::k1F1B;
  return c;
}

TEST_P(PipelineBitsTest, EveryScheduleHasTheBitsOfAccumulation) {
  const LanguageModelOptions one = model_of(GetParam());
  const Case cases[] = {{"1f1b", {.pp = 2}, 4},
                        {"1f1b of 4", {.pp = 4}, 4},
                        {"gpipe", {.pp = 4}, 4, PipelineKind::kGpipe},
                        {"interleaved", {.pp = 2}, 4, PipelineKind::kInterleaved, 2},
                        {"zb-h1", {.pp = 2}, 4, PipelineKind::kZbH1},
                        {"zb-h1 of 4", {.pp = 4}, 4, PipelineKind::kZbH1}};
  // Of 12 tokens a sample: a table of 67 rows is touched in part by dp = 4, but not by one rank.
  const MeshShape kinds[] = {{},
                             {.dp = 2},
                             {.dp = 4},
                             {.tp = 2, .sequence_parallel = true},
                             {.tp = 2, .dp = 2, .sequence_parallel = true}};
  for (const MeshShape& kind : kinds) {
    for (Case c : cases) {
      if (kind.dp * c.micro_batches > one.sequences) c.micro_batches = one.sequences / kind.dp;
      const int pp = c.mesh.pp;
      c.mesh = kind;
      c.mesh.pp = pp;
      const Step accumulated = first_step(on_mesh(one, without_stages(c)));
      const Step piped = first_step(on_mesh(one, c));
      EXPECT_EQ(piped.loss, accumulated.loss) << c.name << kind.tp << kind.dp;
      EXPECT_EQ(piped.gradients, accumulated.gradients) << c.name << kind.tp << kind.dp;
    }
  }
}

// A rank's sums are whole before they are added to another's, an accumulation adds each product to
// what is there: the same summands, a few roundings apart. Losses are sums in double.
TEST(DataParallelism, HasTheGradientsOfAsManyAccumulations) {
  constexpr double kLossOrder = 1e-12, kGradientOrder = 1e-6;
  for (const char* name : {"gpt2", "llama", "llama-tied", "llama-grouped"}) {
    for (const int ranks : {2, 4, 8}) {
      LanguageModelOptions one = model_of(name);
      const Step shared = first_step(on_mesh(one, {"", {.dp = ranks}}));
      one.micro_batches = ranks;
      const Step accumulated = first_step(one);
      EXPECT_NEAR(shared.loss, accumulated.loss, kLossOrder * accumulated.loss) << name << ranks;
      EXPECT_LE(largest_difference_by_parameter(shared, accumulated), kGradientOrder)
          << name << ranks;
    }
  }
}

// Shares of 2^n + 1 rows are unlike, and chunks of tokens must be cut alike all the same.
TEST(MeshHeads, CutTokensAlikeForUnlikeShares) {
  LanguageModelOptions one = model_of("llama");
  one.model.vocab = 16385;
  one.model.layers = 1;
  one.context = 16;
  one.sequences = 20;  // more than the smallest chunk of 256 tokens
  const auto loss = [&](const LanguageModelOptions& options) {
    RandomBatches batches(one.model.vocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    return loop.gradients(StepIndex(1), {}).loss;
  };
  const double whole = loss(one);
  EXPECT_NEAR(loss(on_mesh(one, {"", {.tp = 2}})), whole, kLossRounding * whole);
}

TEST(MeshEvaluation, WorksWithFewerSequencesThanRanks) {
  const LanguageModelOptions one = model_of("gpt2");
  RandomBatches batches(kVocab, one.sequences, one.context);
  LanguageModelLoop alone(one, batches.provider());
  LanguageModelLoop mesh(on_mesh(one, {"", {.pp = 2, .dp = 4}}), batches.provider());
  RandomBatches single(kVocab, 1, 7);
  const TokenBatch batch = single.at(StepIndex(2));
  const CopiedParameters source(alone.parameters());
  EXPECT_NEAR(mesh.loss(batch, source), alone.loss(batch, source), 1e-5);
}

// Ranks then hold unlike numbers of rows, or none.
TEST(MeshEvaluation, SplitsSequencesOfAnyLength) {
  for (const char* name : {"gpt2", "llama-grouped"}) {
    const LanguageModelOptions one = model_of(name);
    RandomBatches batches(kVocab, one.sequences, one.context);
    LanguageModelLoop alone(one, batches.provider());
    LanguageModelLoop mesh(on_mesh(one, {"", {.tp = 4, .pp = 2, .sequence_parallel = true}, 2}),
                           batches.provider());
    const CopiedParameters source(alone.parameters());
    for (const std::int64_t length : {1, 3, 7, 12}) {
      RandomBatches few(kVocab, length == 12 ? 5 : 1, length);
      const TokenBatch batch = few.at(StepIndex(2));
      EXPECT_NEAR(mesh.loss(batch, source), alone.loss(batch, source), 1e-5) << name << length;
    }
  }
}

TEST(MeshPrecision, Bf16FollowsOneRankInBf16) {
  for (const char* name : {"gpt2", "llama-grouped"}) {
    LanguageModelOptions one = model_of(name);
    one.bf16 = true;
    const Step alone = first_step(one);
    for (const bool split : {false, true}) {
      const MeshShape shape{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = split};
      const Step mesh = first_step(on_mesh(one, {"", shape, 2}));
      constexpr double kBf16Rounding = 1.0 / 128;  // eight bits, through four layers
      EXPECT_NEAR(mesh.loss, alone.loss, kBf16Rounding * alone.loss) << name << split;
      EXPECT_LE(largest_difference(mesh.gradients, alone.gradients),
                4 * kBf16Rounding * largest(alone.gradients))
          << name << split;
    }
  }
}

TEST(MeshRecomputation, ChangesNoBit) {
  for (const char* name : {"gpt2", "llama", "llama-grouped"}) {
    for (const bool split : {false, true}) {
      const MeshShape shape{.tp = 2, .pp = 2, .sequence_parallel = split};
      LanguageModelOptions options = on_mesh(model_of(name), {"", shape, 4});
      options.bf16 = split;
      const Step kept = first_step(options);
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
        options.recompute = recompute;
        const Step again = first_step(options);
        EXPECT_EQ(again.loss, kept.loss) << name << split << recompute_name(recompute);
        EXPECT_EQ(again.gradients, kept.gradients) << name << split << recompute_name(recompute);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineBitsTest,
                         testing::Values("gpt2", "llama", "llama-tied", "llama-grouped"));

// --- ranks with memory of their own

TEST_P(MeshTest, ProcessesHaveTheBitsOfThreads) {
  if (mesh_.mesh.ranks() == 1) return;
  const Step threads = first_step(mesh_);
  const std::vector<double> losses = losses_of(mesh_, 3);
  with_processes(mesh_, [&](const LanguageModelOptions& options) {
    const Step processes = first_step(options);
    EXPECT_EQ(processes.loss, threads.loss);
    EXPECT_EQ(processes.gradients, threads.gradients);
  });
  with_processes(mesh_, [&](const LanguageModelOptions& options) {
    EXPECT_EQ(losses_of(options, 3), losses);
  });
}

// --- refusals

std::string refusal(const LanguageModelOptions& options) {
  try {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MeshRefusals, NameTheNearestMeshThatWorks) {
  const LanguageModelOptions o = model_of("llama");
  EXPECT_THAT(refusal(on_mesh(o, {"", {.tp = 3}})),
              testing::AllOf(testing::HasSubstr("parallel.tp = 3"), testing::HasSubstr("is 2")));
  EXPECT_THAT(refusal(on_mesh(o, {"", {.tp = 8}})),
              testing::AllOf(testing::HasSubstr("parallel.tp = 8"), testing::HasSubstr("is 4")));
  LanguageModelOptions odd = o;
  odd.context = 10;
  EXPECT_THAT(refusal(on_mesh(odd, {"", {.tp = 4, .sequence_parallel = true}})),
              testing::AllOf(testing::HasSubstr("parallel.sequence_parallel"),
                             testing::HasSubstr("train.context = 10"), testing::HasSubstr("is 2")));
  LanguageModelOptions keys = o;
  keys.model.d_model = 48;
  keys.model.heads = 12;
  keys.model.d_ff = 96;
  EXPECT_THAT(refusal(on_mesh(keys, {"", {.tp = 6}})),
              testing::AllOf(testing::HasSubstr("model.n_kv_heads = 4 or be a multiple"),
                             testing::HasSubstr("is 4")));
  EXPECT_THAT(refusal(on_mesh(o, {"", {.pp = 5}})),
              testing::AllOf(testing::HasSubstr("parallel.pp = 5"), testing::HasSubstr("is 4")));
  EXPECT_THAT(refusal(on_mesh(o, {"", {.dp = 3}})),
              testing::AllOf(testing::HasSubstr("parallel.dp = 3"), testing::HasSubstr("is 2")));
  EXPECT_THAT(refusal(on_mesh(o, {"", {.pp = 4, .dp = 4096}})), testing::HasSubstr("at most 1024"));
  for (const char* codec : {"int8:ef", "topk:64", "randk"}) {
    LanguageModelOptions coded = on_mesh(o, {"", {.dp = 2}});
    coded.rank_codecs.data = codec;
    EXPECT_THAT(refusal(coded), testing::HasSubstr("parallel.codec_data")) << codec;
  }
  EXPECT_THAT(refusal(on_mesh(o, {"", {.dp = 2}, 3})),
              testing::HasSubstr("parallel.micro_batches = 3"));
}

TEST(MeshPositions, AreNumberedWithTensorRanksInnermost) {
  const MeshShape mesh{.tp = 2, .pp = 3, .dp = 4};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh_rank(mesh, mesh_position(mesh, rank)), rank);
  }
  EXPECT_EQ(mesh_position(mesh, 1).tp, 1);
  EXPECT_EQ(mesh_position(mesh, 2).dp, 1);
  EXPECT_EQ(mesh_position(mesh, 8).pp, 1);
}

// Every canonical element is written once by the ranks of a mesh, with the value they took there.
TEST(RankLayouts, CoverTheCanonicalLayoutOnce) {
  for (const char* name :
       {"gpt2", "llama", "llama-tied", "llama-grouped", "llama-two-keys", "llama-one-key"}) {
    const LanguageModelOptions o = model_of(name);
    const ModelLayout canonical(model_shape(o.model, o.context));
    std::vector<float> values(static_cast<std::size_t>(canonical.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    std::vector<float> back(values.size(), 0.0f);
    std::vector<int> writers(values.size(), 0);
    for (int stage = 0; stage < 2; ++stage) {
      for (int rank = 0; rank < 4; ++rank) {
        RankShare share;
        share.ranks = 4;
        share.rank = rank;
        share.layers = {stage * 2, stage * 2 + 2};
        share.first_stage = stage == 0;
        share.last_stage = stage == 1;
        const RankLayout layout(canonical, share);
        std::vector<float> local(static_cast<std::size_t>(layout.local().elements()));
        layout.take(values.data(), {0, layout.local().elements()}, local.data());
        const CanonicalRange own{layout.tied_embedding().end, layout.local().elements()};
        std::vector<float> given(values.size(), 0.0f);
        layout.give(local.data() + own.begin, own, given.data());
        layout.give(local.data() + own.begin, own, back.data());
        for (std::size_t i = 0; i < given.size(); ++i) writers[i] += given[i] != 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(back, values) << name;
    EXPECT_THAT(writers, testing::Each(1)) << name;
  }
}

// Values travel in pieces, which begin and end anywhere in rows.
TEST(RankLayouts, PiecesTakeAndGiveWhatTheWholeDoes) {
  for (const char* name : {"gpt2", "llama-tied", "llama-one-key"}) {
    const LanguageModelOptions o = model_of(name);
    const ModelLayout canonical(model_shape(o.model, o.context));
    std::vector<float> values(static_cast<std::size_t>(canonical.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    for (int rank = 0; rank < 4; ++rank) {
      RankShare share;
      share.ranks = 4;
      share.rank = rank;
      share.layers = {0, o.model.layers};
      const RankLayout layout(canonical, share);
      const std::int64_t size = layout.local().elements();
      std::vector<float> whole(static_cast<std::size_t>(size));
      layout.take(values.data(), {0, size}, whole.data());
      std::vector<float> expected(values.size(), 1.0f);
      layout.give(whole.data(), {0, size}, expected.data());
      for (const std::int64_t length : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}}) {
        std::vector<float> pieces, given(values.size(), 1.0f);
        for (std::int64_t begin = 0; begin < size; begin += length) {
          const CanonicalRange piece{begin, std::min(begin + length, size)};
          std::vector<float> own(static_cast<std::size_t>(piece.size()));
          layout.take(values.data(), piece, own.data());
          layout.give(own.data(), piece, given.data());
          layout.give(own.data(), {begin, begin}, given.data());
          pieces.insert(pieces.end(), own.begin(), own.end());
        }
        EXPECT_EQ(pieces, whole) << name << " " << rank << " " << length;
        EXPECT_EQ(given, expected) << name << " " << rank << " " << length;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
