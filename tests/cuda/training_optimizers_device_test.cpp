// SPDX-License-Identifier: Apache-2.0
// Optimizers on the device against those of the CPU, and their checkpoints.
#include "cuda/training_case.h"

namespace isthmus::this_file {
namespace {
constexpr std::int64_t kShort = 5;  // tokens, since many steps are taken
constexpr double kFloatError = 2e-5;

class CudaLoopOptimizers : public CudaLoopTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    CudaLoopTest::SetUp();
    options_.context = kShort;
    batches_ = cpu_batches_ = RandomBatches(kVocab, kSequences, kShort);
    if (GetParam() == 0) return;
    options_.inner.optimizer = GetParam() == 4 ? "muon" : "sgd";
    if (GetParam() != 4) options_.inner.lr = 0.1;
    options_.inner.momentum = GetParam() == 1 ? 0 : 0.9;
    options_.inner.nesterov = GetParam() >= 3;
  }
  LanguageModelOptions options_ = tiny_options("gpt2");
};

TEST_P(CudaLoopOptimizers, TakeTheCpusSteps) {
  options_.inner.clip = 0.5;
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  const Trajectory there = train(loop, 1, 4);
  const Trajectory here = train(cpu, 1, 4);
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], here.losses[i], kFloatError * here.losses[i]);
    EXPECT_NEAR(there.norms[i], here.norms[i], 10 * kFloatError * here.norms[i]);
  }
  EXPECT_GT(here.norms[0], 0.5) << "nothing was clipped";
}

TEST_P(CudaLoopOptimizers, GoOnAcrossDevices) {
  CudaLoop straight(options_, batches_.provider());
  const Trajectory expected = train(straight, 1, 5);
  for (const bool to_cpu : {false, true}) {
    LanguageModelLoop cpu(options_, cpu_batches_.provider());
    CudaLoop device(options_, batches_.provider());
    InnerLoop& first = to_cpu ? static_cast<InnerLoop&>(device) : cpu;
    InnerLoop& second = to_cpu ? static_cast<InnerLoop&>(cpu) : device;
    const Trajectory begin = train(first, 1, 3);
    MemoryState state;
    first.save(state);
    static_cast<void>(train(second, 1, 1));  // what it had is forgotten
    second.load(state);
    set_values(second, begin.values);
    const Trajectory end = train(second, 4, 5);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(end.losses[i], expected.losses[i + 3], kFloatError * expected.losses[i + 3]);
    }
    EXPECT_LE(relative_error(end.values, expected.values), 1e-3);
  }
}

TEST_P(CudaLoopOptimizers, ResumeWithTheSameBits) {
  CudaLoop straight(options_, batches_.provider());
  const Trajectory expected = train(straight, 1, 4);
  CudaLoop first(options_, batches_.provider());
  const Trajectory begin = train(first, 1, 2);
  MemoryState state;
  first.save(state);
  CudaLoop second(options_, cpu_batches_.provider());
  second.load(state);
  set_values(second, begin.values);
  EXPECT_EQ(train(second, 3, 4).values, expected.values);
}

TEST_P(CudaLoopOptimizers, ForgetTheirMoments) {
  CudaLoop loop(options_, batches_.provider());
  const std::vector<float> start = values_now(loop);
  const Trajectory once = train(loop, 1, 1);
  loop.reset_optimizer();
  set_values(loop, start);
  EXPECT_EQ(train(loop, 1, 1), once);
}

std::string optimizer_name(const testing::TestParamInfo<int>& optimizer) {
  constexpr const char* kNames[] = {"adamw", "sgd", "momentum", "nesterov", "muon"};
  return kNames[optimizer.param];
}
INSTANTIATE_TEST_SUITE_P(Optimizers, CudaLoopOptimizers, testing::Values(0, 1, 2, 3, 4),
                         optimizer_name);

}  // namespace
}  // namespace isthmus::this_file
