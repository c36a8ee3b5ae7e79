// SPDX-License-Identifier: Apache-2.0
// The oracle of ZeRO is the same mesh without it: the same weights, bit for bit, after every step.
#include "inner/zero_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "inner/loop/model_cost.h"
#include "inner/model/embedding_rows.h"
#include "test_weight.h"

namespace isthmus::this_file {
namespace {

// Each of a rank's buffers ends with a cache line.
constexpr double kAlignment = 5 * 64;

class ZeroTest : public testing::TestWithParam<std::tuple<const char*, Case, int>> {
 protected:
  LanguageModelOptions plain_ = on_mesh(clipped(std::get<0>(GetParam())), std::get<1>(GetParam()));
  int zero_ = std::get<2>(GetParam());
  LanguageModelOptions shared_ = with_zero(plain_, zero_);
};

TEST_P(ZeroTest, ThreadsHaveTheBitsOfDataParallelism) {
  expect_same(trained(plain_), trained(shared_));
}

TEST_P(ZeroTest, ProcessesHaveTheBitsOfDataParallelism) {
  const Trajectory plain = trained(plain_);
  with_processes(
      shared_, [&](const LanguageModelOptions& options) { expect_same(plain, trained(options)); });
}

// What the outer loop writes into the weights, and an evaluation of others in between, reach the
// ranks.
TEST_P(ZeroTest, RanksSeeWhatTheOuterLoopWrites) {
  const auto run = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    Trajectory all;
    train(loop, 1, 2, all);
    const CopiedParameters before(loop);
    for (const Parameter& p : loop.parameters()) {
      for (float& value : p.values) value *= 0.75f;
    }
    loop.wrote_values(all_elements(loop));
    train(loop, 3, 3, all);
    all.losses.push_back(loop.loss(RandomBatches(kVocab, 3, 7).at(StepIndex(9)), before));
    train(loop, 4, 4, all);
    loop.reset_optimizer();
    train(loop, 5, 6, all);
    return all;
  };
  const Trajectory plain = run(plain_);
  expect_same(plain, run(shared_));
  with_processes(shared_, [&](const LanguageModelOptions& o) { expect_same(plain, run(o)); });
}

TEST_P(ZeroTest, CheckpointsGoOnWithAndWithoutSharing) {
  const Trajectory straight = trained(plain_);
  const auto resumed = [](const LanguageModelOptions& first, const LanguageModelOptions& then) {
    MemoryState state;
    Trajectory all;
    RandomBatches batches(kVocab, first.sequences, first.context);
    {
      LanguageModelLoop loop(first, batches.provider());
      train(loop, 1, 3, all);
      loop.save(state);
    }
    LanguageModelLoop loop(then, batches.provider());
    std::size_t place = 0;
    for (const Parameter& p : loop.parameters()) {
      std::copy_n(all.values.begin() + static_cast<std::ptrdiff_t>(place), p.values.size(),
                  p.values.begin());
      place += p.values.size();
    }
    loop.wrote_values(all_elements(loop));
    loop.load(state);
    train(loop, 4, kSteps, all);
    return all;
  };
  expect_same(straight, resumed(shared_, plain_));
  expect_same(straight, resumed(plain_, shared_));
  expect_same(straight, resumed(shared_, shared_));
  with_processes(shared_, [&](const LanguageModelOptions& processes) {
    expect_same(straight, resumed(plain_, processes));
  });
}

// Gradients, and weights, that others read and write before the update, as ddp over several sites
// does the former.
TEST_P(ZeroTest, GradientsGoOutAndComeBack) {
  const auto run = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    Trajectory all;
    for (int t = 1; t <= 3; ++t) {
      all.losses.push_back(loop.gradients(StepIndex(t), {}).loss);
      for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
        for (float& g : loop.gradient(i)) g *= 3;
        if (t != 2) continue;
        loop.read_values(loop.parameters()[i].elements);
        for (float& value : loop.parameters()[i].values) value += 0.001f;
        loop.wrote_values(loop.parameters()[i].elements);
      }
      all.norms.push_back(loop.apply_gradients(StepIndex(t)));
    }
    all.values = all_values(loop);
    return all;
  };
  const Trajectory plain = run(plain_);
  expect_same(plain, run(shared_));
  with_processes(shared_, [&](const LanguageModelOptions& o) { expect_same(plain, run(o)); });
}

// A joiner replays results over an inner loop that stands still: updates without a pass before.
TEST_P(ZeroTest, AnUpdateNeedsNoPassBefore) {
  const auto run = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    for (int t = 1; t <= 2; ++t) {
      for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
        float k = static_cast<float>(i + 1);
        loop.read_values(loop.parameters()[i].elements);
        for (float& value : loop.parameters()[i].values) value += 0.001f * k;
        loop.wrote_values(loop.parameters()[i].elements);
        for (float& g : loop.gradient(i)) {
          k += 1;
          g = 0.01f * k / (k + 7);
        }
      }
      (void)loop.apply_gradients(StepIndex(t));
    }
    return all_values(loop);
  };
  const auto plain = run(plain_);
  EXPECT_EQ(run(shared_), plain);
  with_processes(shared_, [&](const LanguageModelOptions& o) { EXPECT_EQ(run(o), plain); });
}

TEST_P(ZeroTest, RanksHoldWhatTheFormulasSay) {
  RandomBatches batches(kVocab, shared_.sequences, shared_.context);
  const ModelLayout layout(model_shape(shared_.model, shared_.context));
  const MeshOptions options = mesh_options(shared_);
  LanguageModelLoop loop(shared_, batches.provider());
  (void)loop.train_step(StepIndex(1));
  std::int64_t expected = layout.elements() * 4;  // the canonical weights
  for (int rank = 0; rank < options.mesh.ranks(); ++rank) {
    expected += MeshRank::bytes(layout, options, rank);
  }
  EXPECT_NEAR(static_cast<double>(loop.held_bytes()), static_cast<double>(expected),
              kAlignment * options.mesh.ranks());
}

std::string test_name(const testing::TestParamInfo<ZeroTest::ParamType>& at) {
  std::string name = std::string(std::get<0>(at.param)) + std::get<1>(at.param).name + "zero" +
                     std::to_string(std::get<2>(at.param));
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

using testing_support::covering_set;

const std::vector<Case> kCases = {
    {"dp2", {.dp = 2}},
    {"dp4", {.dp = 4}},
    {"tp2 dp2", {.tp = 2, .dp = 2}},
    {"split", {.tp = 2, .dp = 2, .sequence_parallel = true}},
};
INSTANTIATE_TEST_SUITE_P(Meshes, ZeroTest,
                         testing::ValuesIn(covering_set<const char*, Case, int>(
                             {"gpt2", "llama", "llama-tied", "llama-grouped"}, kCases, {1, 2, 3})),
                         test_name);
const Case kCopies[] = {{"tp4 dp2", {.tp = 4, .dp = 2, .sequence_parallel = true}}};
INSTANTIATE_TEST_SUITE_P(CopiedKeyHeads, ZeroTest,
                         testing::Combine(testing::Values("llama-two-keys"),
                                          testing::ValuesIn(kCopies), testing::Values(1, 2, 3)),
                         test_name);
const Case kPipelines[] = {
    {"pp2 dp2", {.pp = 2, .dp = 2}, 2},
    {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 2},
    {"interleaved", {.pp = 2, .dp = 2}, 2, PipelineKind::kInterleaved, 2},
    {"zbh1", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2, PipelineKind::kZbH1},
};
INSTANTIATE_TEST_SUITE_P(Pipelines, ZeroTest,
                         testing::Combine(testing::Values("gpt2", "llama", "llama-tied"),
                                          testing::ValuesIn(kPipelines), testing::Values(1)),
                         test_name);

// With one micro-batch there is nothing to be added in another order.
const std::vector<Case> kPipelinesOfOne = {
    {"pp2 dp2 of one", {.pp = 2, .dp = 2}},
    {"pp4 dp2 of one", {.pp = 4, .dp = 2}},
    {"tp2 pp2 dp2 split of one", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}},
};
INSTANTIATE_TEST_SUITE_P(PipelinesOfOne, ZeroTest,
                         testing::ValuesIn(covering_set<const char*, Case, int>(
                             {"gpt2", "llama", "llama-tied"}, kPipelinesOfOne, {2, 3})),
                         test_name);

class ZeroVariantsTest : public testing::TestWithParam<int> {};

TEST_P(ZeroVariantsTest, Bf16AndRecomputationChangeNothingOfIt) {
  for (const auto& [name, recompute] : {std::pair{"gpt2", Recompute::kFull},
                                        {"gpt2", Recompute::kSelective},
                                        {"llama-grouped", Recompute::kFull},
                                        {"llama-grouped", Recompute::kSelective}}) {
    LanguageModelOptions plain = on_mesh(clipped(name), {"", {.tp = 2, .dp = 2}});
    plain.bf16 = true;
    plain.recompute = recompute;
    const Trajectory expected = trained(plain);
    expect_same(expected, trained(with_zero(plain, GetParam())));
    with_processes(with_zero(plain, GetParam()), [&](const LanguageModelOptions& options) {
      expect_same(expected, trained(options));
    });
  }
}

TEST_P(ZeroVariantsTest, SgdWithAndWithoutMomentum) {
  for (const double momentum : {0.0, 0.9}) {
    LanguageModelOptions plain = on_mesh(clipped("gpt2"), {"", {.dp = 2}});
    plain.inner.optimizer = "sgd";
    plain.inner.momentum = momentum;
    expect_same(trained(plain), trained(with_zero(plain, GetParam())));
  }
}

TEST_P(ZeroVariantsTest, OneRankSharesNothing) {
  const LanguageModelOptions plain = on_mesh(clipped("llama"), {"", {.tp = 2}});
  expect_same(trained(plain), trained(with_zero(plain, GetParam())));
}

// Slices add micro-batches that are summed over the ranks already; whole gradients the other way
// round.
TEST_P(ZeroVariantsTest, MicroBatchesAddUpInAnotherOrder) {
  constexpr double kRounding = 1e-6;  // of the norm, relative; float sums
  for (const char* name : {"gpt2", "llama"}) {
    const LanguageModelOptions plain = on_mesh(clipped(name), {"", {.dp = 2}, 2});
    const Trajectory expected = trained(plain);
    const Trajectory found = trained(with_zero(plain, GetParam()));
    for (std::size_t t = 0; t < expected.losses.size(); ++t) {
      EXPECT_NEAR(found.losses[t], expected.losses[t], kRounding * expected.losses[t]) << t;
      EXPECT_NEAR(found.norms[t], expected.norms[t], kRounding * expected.norms[t]) << t;
    }
    with_processes(with_zero(plain, GetParam()), [&](const LanguageModelOptions& options) {
      expect_same(found, trained(options));
    });
  }
}

// Buckets of which some rank has nothing, and codes of nothing.
TEST_P(ZeroVariantsTest, CodedGradientsTrain) {
  LanguageModelOptions coded = on_mesh(clipped("gpt2"), {"", {.dp = 4}});
  const Trajectory exact = trained(coded);
  coded.rank_codecs.data = "int8";
  coded.zero = GetParam();
  const Trajectory found = trained(coded);
  EXPECT_NEAR(found.losses.back(), exact.losses.back(), 0.01 * exact.losses.back());
  with_processes(
      coded, [&](const LanguageModelOptions& options) { expect_same(found, trained(options)); });
}

// ZeRO's table (arXiv:1910.02054, figure 1) with fp32 everywhere: 16 P, of which the moments' 8,
// then the gradients' 4, then the weights' 4 are divided.
TEST_P(ZeroVariantsTest, MemoryOfARankIsThatOfThePapersTable) {
  const int zero = GetParam();
  for (const char* name : {"gpt2", "llama"}) {
    const LanguageModelOptions o = with_zero(on_mesh(clipped(name), {"", {.dp = 4}}), zero);
    const ModelLayout layout(model_shape(o.model, o.context));
    const MeshOptions options = mesh_options(o);
    const std::int64_t p = layout.elements();
    const std::int64_t layer = layout.layer_elements(0).size();
    const std::int64_t outside = p - o.model.layers * layer;
    const bool gpt2 = o.model.arch == "gpt2";
    // Llama's head and embedding are alike but for the final norm beside the head.
    const std::int64_t buffers = 2 * layer + (gpt2 ? outside : (outside + o.model.d_model) / 2);
    auto worlds = make_thread_communicators(4, std::chrono::minutes(2));
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 4; ++r) {
      ranks.emplace_back([&, r] {
        const MeshRank rank(layout, options, *worlds[static_cast<std::size_t>(r)], true);
        const std::int64_t part = p * (r + 1) / 4 - p * r / 4;
        std::int64_t values = zero == 1 ? 2 * p + 2 * part : zero == 2 ? p + 3 * part : 4 * part;
        if (zero >= 2) values += buffers;
        if (zero == 3) values += buffers;
        const std::int64_t tokens = options.micro_batch_sequences() * options.context;
        std::int64_t arena = LanguageModel<float>::arena_bytes(layout, tokens, options.purpose);
        if (layout.shape().tied) {
          arena += EmbeddingRows<float>::bytes(embedding_rows_size(layout, tokens, 1));
        }
        EXPECT_NEAR(static_cast<double>(rank.held_bytes()), static_cast<double>(4 * values + arena),
                    kAlignment)
            << name << r;
        EXPECT_EQ(MeshRank::bytes(layout, options, r, true), 4 * values + arena) << name << r;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ZeroVariantsTest, testing::Values(1, 2, 3));

std::string refusal(const LanguageModelOptions& options) {
  try {
    (void)trained(options, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ZeroRefusals, NameKeyValueAndRemedy) {
  LanguageModelOptions muon = with_zero(on_mesh(clipped("gpt2"), {"", {.dp = 2}}), 1);
  muon.inner.optimizer = "muon";
  EXPECT_THAT(refusal(muon),
              testing::AllOf(testing::HasSubstr("parallel.zero = 1"), testing::HasSubstr("muon"),
                             testing::HasSubstr("leave zero out")));
  const std::pair<PipelineKind, const char*> schedules[] = {{PipelineKind::kGpipe, "gpipe"},
                                                            {PipelineKind::kZbH1, "zb-h1"}};
  for (const auto& [kind, name] : schedules) {
    const Case c{"", {.pp = 2, .dp = 2}, 2, kind};
    EXPECT_THAT(refusal(with_zero(on_mesh(clipped("gpt2"), c), 2)),
                testing::AllOf(
                    testing::HasSubstr(std::string("parallel.zero = 2 with schedule = \"") + name),
                    testing::HasSubstr("choose 1f1b")));
  }
  RandomBatches batches(kVocab, 8, 12);
  LanguageModelLoop loop(with_zero(on_mesh(clipped("gpt2"), {"", {.dp = 2}}), 1),
                         batches.provider());
  EXPECT_THROW((void)loop.adam_moments(0), ConfigError);
}

}  // namespace
}  // namespace isthmus::this_file
