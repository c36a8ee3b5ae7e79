// SPDX-License-Identifier: Apache-2.0
// Steps of training on the device against those of the CPU, with and without graphs.
#include "cuda/training_case.h"
#include "test_weight.h"

namespace isthmus::this_file {
namespace {
constexpr std::int64_t kShort = 5;    // tokens, since many steps are taken
constexpr double kCurveError = 1e-4;  // of 50 steps

class CudaLoopSteps : public CudaModelsTest {
 protected:
  void SetUp() override {
    CudaModelsTest::SetUp();
    options_.model.layers = 1;
    options_.context = kShort;
    batches_ = cpu_batches_ = RandomBatches(kVocab, kSequences, kShort);
  }
};

TEST_P(CudaLoopSteps, FollowTheCpusLosses) {
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  const int steps = testing_support::by_weight(12, 50);
  const Trajectory there = train(loop, 1, steps);
  const Trajectory here = train(cpu, 1, steps);
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], here.losses[i], kCurveError * here.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(there.norms[i], here.norms[i], 20 * kCurveError * here.norms[i]) << i + 1;
  }
}

TEST_P(CudaLoopSteps, HaveTheSameBitsAsGraphs) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    // The number of targets, which a graph holds, varies.
    SparseBatches one(true, kShort), other(true, kShort);
    CudaLoop graphs(options_, one.provider());
    CudaLoop plain(options_, other.provider(), {.graphs = false});
    EXPECT_EQ(train(graphs, 1, 5), train(plain, 1, 5));
  }
}

TEST_P(CudaLoopSteps, InBf16LearnAsWellAsInFloat) {
  CudaLoop exact(options_, cpu_batches_.provider());
  options_.bf16 = true;
  CudaLoop loop(options_, batches_.provider());
  EXPECT_NEAR(train(loop, 1, 4).losses.back(), train(exact, 1, 4).losses.back(), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLoopSteps, testing::Values("gpt2", "llama+"),
                         [](const auto& param) {
                           return std::string(param.index == 0 ? "gpt2" : "llama_grouped");
                         });

}  // namespace
}  // namespace isthmus::this_file
