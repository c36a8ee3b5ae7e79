// SPDX-License-Identifier: Apache-2.0
// The oracle of a mesh is the same run on one rank (spec: the equivalence table of the inner loop):
// what only reorders whole sums is bitwise, what cuts a sum into other parts stays within rounding.
#include "inner/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "inner/inner_test.h"
#include "inner/rank_layout.h"
#include "transport/thread_communicator.h"

namespace isthmus {
namespace {

// Of one step, relative to the largest value; sums of floats in another order.
constexpr double kLossRounding = 1e-6;
constexpr double kGradientRounding = 1e-5;
constexpr double kTrajectoryRounding = 1e-4;
constexpr std::int64_t kVocab = 67;  // no multiple of anything: shares of the vocabulary differ

struct Case {
  std::string name;
  MeshShape mesh;
  std::int64_t micro_batches = 1;
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

LanguageModelOptions model_of(const std::string& name) {
  LanguageModelOptions o;
  o.model = {
      .arch = "gpt2", .layers = 4, .d_model = 32, .heads = 4, .vocab = kVocab, .context = 16};
  if (name != "gpt2") {
    o.model.arch = "llama";
    o.model.kv_heads = 4;
    o.model.tied = name == "llama-tied";
  }
  if (name == "llama-grouped") {
    o.model.heads = 8;
    o.model.kv_heads = 4;
    o.model.qk_norm = true;
    o.model.z_loss = 1e-3;
  }
  o.inner.lr = 2e-3;
  o.inner.clip = 1;
  o.context = 12;
  o.sequences = 8;
  o.total_steps = 20;
  o.seed = 5;
  return o;
}

LanguageModelOptions on_mesh(LanguageModelOptions o, const Case& c) {
  o.mesh = c.mesh;
  o.micro_batches = c.micro_batches;
  o.schedule = c.schedule;
  o.virtual_stages = c.virtual_stages;
  return o;
}

struct Step {
  double loss = 0;
  std::vector<float> gradients;
};

Step first_step(const LanguageModelOptions& options) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Step step;
  step.loss = loop.gradients(StepIndex(1), {}).loss;
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const auto gradient = loop.gradient(i);
    step.gradients.insert(step.gradients.end(), gradient.begin(), gradient.end());
  }
  return step;
}

std::vector<double> losses_of(const LanguageModelOptions& options, int steps) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  std::vector<double> losses;
  for (int t = 1; t <= steps; ++t) losses.push_back(loop.train_step(StepIndex(t)).loss);
  return losses;
}

double largest(const std::vector<float>& values) {
  double top = 0;
  for (const float v : values) top = std::max(top, std::abs(static_cast<double>(v)));
  return top;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double top = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    top = std::max(top, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return top;
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
  EXPECT_LE(largest_difference(mesh.gradients, one.gradients),
            kGradientRounding * largest(one.gradients));
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
    {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 2},
    {"tp4 dp2", {.tp = 4, .dp = 2}, 2},
};
INSTANTIATE_TEST_SUITE_P(Meshes, MeshTest,
                         testing::Combine(testing::Values("gpt2", "llama", "llama-tied",
                                                          "llama-grouped"),
                                          testing::ValuesIn(kCases)),
                         [](const auto& at) {
                           std::string name =
                               std::string(std::get<0>(at.param)) + std::get<1>(at.param).name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// --- what must be the same bits

class PipelineBitsTest : public testing::TestWithParam<const char*> {};

TEST_P(PipelineBitsTest, EveryScheduleHasTheBitsOfAccumulation) {
  LanguageModelOptions one = model_of(GetParam());
  one.micro_batches = 4;
  const Step accumulated = first_step(one);
  const Case cases[] = {{"1f1b", {.pp = 2}, 4},
                        {"1f1b of 4", {.pp = 4}, 4},
                        {"gpipe", {.pp = 4}, 4, PipelineKind::kGpipe},
                        {"interleaved", {.pp = 2}, 4, PipelineKind::kInterleaved, 2}};
  for (const Case& c : cases) {
    const Step piped = first_step(on_mesh(one, c));
    EXPECT_EQ(piped.loss, accumulated.loss) << c.name;
    EXPECT_EQ(piped.gradients, accumulated.gradients) << c.name;
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

TEST(MeshPrecision, Bf16FollowsOneRankInBf16) {
  for (const char* name : {"gpt2", "llama-grouped"}) {
    LanguageModelOptions one = model_of(name);
    one.bf16 = true;
    const Step alone = first_step(one);
    const Step mesh = first_step(on_mesh(one, {"", {.tp = 2, .pp = 2, .dp = 2}, 2}));
    constexpr double kBf16Rounding = 1.0 / 128;  // eight bits, through four layers
    EXPECT_NEAR(mesh.loss, alone.loss, kBf16Rounding * alone.loss) << name;
    EXPECT_LE(largest_difference(mesh.gradients, alone.gradients),
              4 * kBf16Rounding * largest(alone.gradients))
        << name;
  }
}

TEST_P(PipelineBitsTest, RecomputationChangesNoBit) {
  LanguageModelOptions options = on_mesh(model_of(GetParam()), {"", {.tp = 2, .pp = 2}, 4});
  const Step kept = first_step(options);
  options.recompute = true;
  EXPECT_EQ(first_step(options).gradients, kept.gradients);
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineBitsTest, testing::Values("llama", "llama-grouped"));

// --- ranks with memory of their own

/// What `first` does as the first rank of a mesh whose other ranks serve it.
template <typename First>
void with_processes(LanguageModelOptions options, const First& first) {
  auto ranks = make_thread_communicators(options.mesh.ranks(), std::chrono::minutes(2));
  const ModelLayout layout(model_shape(options.model, options.context));
  std::vector<std::jthread> others;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    others.emplace_back([&, r] {
      LanguageModelOptions own = options;
      own.processes = ranks[r].get();
      serve_mesh(layout, mesh_options(own), *ranks[r]);
    });
  }
  options.processes = ranks[0].get();
  first(options);
}

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

// --- codecs by dimension

TEST(CodedMesh, EachDimensionsCodecChangesThatDimensionAlone) {
  const LanguageModelOptions one = model_of("llama");
  const auto gradients = [&](const Case& c, const CodecByDimension& codecs) {
    LanguageModelOptions options = on_mesh(one, c);
    options.rank_codecs = codecs;
    return first_step(options);
  };
  const Case tp{"", {.tp = 2}}, dp{"", {.dp = 2}}, pp{"", {.pp = 2}, 4};
  const CodecByDimension data{.data = "int8"}, tensor{.tensor = "int8"},
      pipeline{.pipeline = "int8"};
  for (const Case* c : {&tp, &dp, &pp}) {
    const Step plain = gradients(*c, {});
    const double top = largest(plain.gradients);
    for (const CodecByDimension* codecs : {&data, &tensor, &pipeline}) {
      const bool own = (c == &tp && codecs == &tensor) || (c == &dp && codecs == &data) ||
                       (c == &pp && codecs == &pipeline);
      const Step coded = gradients(*c, *codecs);
      const double off = largest_difference(coded.gradients, plain.gradients);
      if (own) {
        EXPECT_GT(off, 1e-5 * top);
        EXPECT_LT(off, 0.1 * top);  // half a step of 127, through a few layers
      } else {
        EXPECT_EQ(off, 0);
      }
    }
  }
}

// The data-parallel sum is that of what each rank's slice decodes to, in rank order: from the
// definition, with the codec itself.
TEST(CodedMesh, SumsDecodedGradientsInRankOrder) {
  LanguageModelOptions half = model_of("llama");
  half.sequences /= 2;
  LanguageModelOptions mesh = on_mesh(model_of("llama"), {"", {.dp = 2}});
  mesh.rank_codecs.data = "int8";
  RandomBatches whole(kVocab, mesh.sequences, mesh.context);
  const auto codec = make_codec("int8");
  std::vector<float> expected;
  const ModelLayout layout(model_shape(half.model, half.context));
  const auto n = static_cast<std::size_t>(layout.elements());
  for (int rank = 0; rank < 2; ++rank) {
    LanguageModelLoop loop(half, [&](StepIndex t) {
      const TokenBatch batch = whole.at(t);
      const std::size_t size = batch.inputs.size() / 2;
      const std::size_t from = static_cast<std::size_t>(rank) * size;
      return TokenBatch{batch.inputs.subspan(from, size), batch.targets.subspan(from, size),
                        half.sequences, half.context};
    });
    (void)loop.gradients(StepIndex(1), {});
    std::vector<float> own;
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      for (const float g : loop.gradient(i)) own.push_back(g / 2);  // exact: the mean is over both
    }
    std::vector<float> decoded(n);
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, n / 2}, {n / 2, n}}) {
      const Encoded code = encode(*codec, std::span(own).subspan(begin, end - begin));
      ASSERT_TRUE(decode(*codec, code.bytes, std::span(decoded).subspan(begin, end - begin)));
    }
    if (rank == 0) expected = decoded;
    if (rank == 1) {
      for (std::size_t i = 0; i < n; ++i) expected[i] += decoded[i];
    }
  }
  EXPECT_EQ(first_step(mesh).gradients, expected);
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
  for (const char* name : {"gpt2", "llama", "llama-tied", "llama-grouped"}) {
    const LanguageModelOptions o = model_of(name);
    const ModelLayout canonical(model_shape(o.model, o.context));
    std::vector<float> values(static_cast<std::size_t>(canonical.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    std::vector<float> back(values.size(), 0.0f);
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
        layout.take(values.data(), local.data());
        const CanonicalRange tied = layout.tied_head();
        layout.give(local.data(), {0, tied.size() > 0 ? tied.begin : layout.local().elements()},
                    true, back.data());
      }
    }
    EXPECT_EQ(back, values) << name;
  }
}

}  // namespace
}  // namespace isthmus
