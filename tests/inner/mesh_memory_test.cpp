// SPDX-License-Identifier: Apache-2.0
// What a mesh is said to hold before it is made, against what it holds.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "inner/loop/model_cost.h"
#include "inner/mesh/canonical_exchange.h"
#include "inner/mesh_test.h"

namespace isthmus::this_file {
namespace {

class MeshMemoryTest : public testing::TestWithParam<std::tuple<Case, int, bool>> {
 protected:
  MeshMemoryTest() {
    options_ = on_mesh(model_of("llama-tied"), std::get<0>(GetParam()));
    options_.zero = std::get<1>(GetParam());
    options_.whole_gradients = std::get<2>(GetParam());
  }

  /// After a step as its method takes it and an evaluation of anchors, so that all that can be
  /// there is there. The chunk of logits is there while it is computed.
  static void expect_foreseen(const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    if (options.whole_gradients) {
      (void)loop.gradients(StepIndex(1), {});
      (void)loop.apply_gradients(StepIndex(1));
    } else {
      (void)loop.train_step(StepIndex(1));
    }
    (void)loop.loss(batches.provider()(StepIndex(2)), CopiedParameters(loop));
    const MemoryEstimate foreseen = loop_memory(loop.layout(), options);
    EXPECT_EQ(static_cast<std::int64_t>(loop.held_bytes()), foreseen.total() - foreseen.logits);
  }

  LanguageModelOptions options_;
};

TEST_P(MeshMemoryTest, ThreadsHoldWhatIsForeseen) { expect_foreseen(options_); }

TEST_P(MeshMemoryTest, TheFirstProcessHoldsWhatIsForeseen) {
  with_processes(options_, expect_foreseen);
}

const Case kCases[] = {
    {"dp2", {.dp = 2}},
    {"tp2 dp2", {.tp = 2, .dp = 2}},
    {"split", {.tp = 2, .dp = 2, .sequence_parallel = true}, 2},
};
const Case kPipelines[] = {
    {"zbh1", {.tp = 2, .pp = 2, .dp = 2}, 4, PipelineKind::kZbH1},
    {"interleaved", {.pp = 2, .dp = 2}, 4, PipelineKind::kInterleaved, 2},
};

std::string test_name(const testing::TestParamInfo<MeshMemoryTest::ParamType>& at) {
  std::string name = std::get<0>(at.param).name + "zero" + std::to_string(std::get<1>(at.param)) +
                     (std::get<2>(at.param) ? "gradients" : "");
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshMemoryTest,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(0, 1, 2, 3),
                                          testing::Bool()),
                         test_name);
const Case kOneAtATime[] = {
    {"1f1b", {.tp = 2, .pp = 2, .dp = 2}, 4},
    {"interleaved", {.pp = 2, .dp = 2}, 4, PipelineKind::kInterleaved, 2},
};
INSTANTIATE_TEST_SUITE_P(PipelinesOfSlices, MeshMemoryTest,
                         testing::Combine(testing::ValuesIn(kOneAtATime), testing::Values(2, 3),
                                          testing::Bool()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Pipelines, MeshMemoryTest,
                         testing::Combine(testing::ValuesIn(kPipelines), testing::Values(0, 1),
                                          testing::Bool()),
                         test_name);

// A rank's share of a large model goes to it in pieces: the first process has room for one.
TEST(MeshMemory, TheFirstProcessNeedsNoRoomForAnotherLayout) {
  LanguageModelOptions o = on_mesh(model_of("gpt2"), {"", {.tp = 2, .dp = 2}});
  o.model.d_model = 512;
  o.model.d_ff = 2048;
  const ModelLayout layout(model_shape(o.model, o.context));
  constexpr std::int64_t kPieceBytes = 4 << 20;
  ASSERT_GT(layout.elements() / 2 * 4, 2 * kPieceBytes);
  EXPECT_EQ(CanonicalExchange::bytes(layout, mesh_options(o)), kPieceBytes);
}

// Several pieces, the last one not whole: the bits of threads.
TEST(MeshMemory, PiecesMakeTheWhole) {
  LanguageModelOptions o = on_mesh(model_of("llama-tied"), {"", {.tp = 2, .dp = 2}});
  o.model.layers = 2;
  o.model.d_model = 512;
  o.model.d_ff = 1400;
  o.model.heads = 8;
  o.sequences = 4;
  for (const int zero : {0, 1, 3}) {
    o.zero = zero;
    const auto trained = [](const LanguageModelOptions& options) {
      RandomBatches batches(kVocab, options.sequences, options.context);
      LanguageModelLoop loop(options, batches.provider());
      for (int t = 1; t <= 2; ++t) (void)loop.train_step(StepIndex(t));
      (void)loop.loss(batches.provider()(StepIndex(3)), CopiedParameters(loop));
      (void)loop.train_step(StepIndex(4));
      return all_values(loop);
    };
    const std::vector<float> threads = trained(o);
    ASSERT_GT(threads.size() / 2, std::size_t{1} << 20);
    with_processes(o,
                   [&](const LanguageModelOptions& first) { EXPECT_EQ(trained(first), threads); });
  }
}

}  // namespace
}  // namespace isthmus::this_file
