// SPDX-License-Identifier: Apache-2.0
// Training with attention by cuDNN on the emulated device, which has plain loops in its place: that
// the chosen attention is the one that runs, where its workspace lies, and what is refused.
#include "cuda/emulated/runtime.h"
#include "cuda/training_case.h"
#include "inner/cuda/device_check.h"

namespace isthmus::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;

// As in training_gradients_device_test.cpp.
constexpr double kBf16Error = 0.03;

class CudnnTraining : public CudaModelsTest {
 protected:
  CudnnTraining() {
    options_.bf16 = true;
    options_.attention = DeviceAttention::kCudnn;
  }
  void TearDown() override {
    cuda::emulated::set_skipped_kernels("");
    cuda::emulated::set_cudnn_missing("");
    cuda::emulated::set_cudnn_without_plan("");
  }
  [[nodiscard]] std::vector<float> on_device(const CudaLoopSettings& settings = {}) {
    CudaLoop loop(options_, batches_.provider(), settings);
    static_cast<void>(loop.gradients(StepIndex(1), {}));
    return all_gradients(loop);
  }
  [[nodiscard]] std::vector<float> on_cpu() {
    LanguageModelLoop loop(options_, cpu_batches_.provider());
    static_cast<void>(loop.gradients(StepIndex(1), {}));
    return all_gradients(loop);
  }
  [[nodiscard]] std::string refusal() {
    try {
      const CudaLoop loop(options_, batches_.provider());
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
};

TEST_P(CudnnTraining, ComputesTheGradientsOfTheCpu) {
  const std::vector<float> cpu = on_cpu();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    options_.recompute = recompute;
    EXPECT_LE(relative_error(on_device(), cpu), kBf16Error);
  }
}

// With own kernels that do nothing it goes on, and they do not go on without.
TEST_P(CudnnTraining, IsTheAttentionThatRuns) {
  const std::vector<float> cpu = on_cpu();
  cuda::emulated::set_skipped_kernels("AttentionShape");
  EXPECT_LE(relative_error(on_device(), cpu), kBf16Error);
  options_.attention = DeviceAttention::kOwn;
  EXPECT_THROW(static_cast<void>(on_device()), RunError);  // of what nobody wrote
}

TEST_P(CudnnTraining, GivesTheSameBitsInGraphs) {
  CudaLoop graphs(options_, batches_.provider());
  RandomBatches again(kVocab, kSequences, kLength);
  CudaLoop plain(options_, again.provider(), {.graphs = false});
  EXPECT_EQ(train(graphs, 1, 4), train(plain, 1, 4));
}

TEST_P(CudnnTraining, HoldsTheMemoryThatIsSaidAndNoMoreInSteps) {
  const auto held = [] {
    const cuda::DeviceMemory memory = cuda::device_memory();
    return static_cast<std::int64_t>(memory.total_bytes - memory.free_bytes);
  };
  for (const bool forward_only : {false, true}) {
    options_.forward_only = forward_only;
    const std::int64_t before = held();
    CudaLoop loop(options_, batches_.provider());
    const std::int64_t after = held();
    const ModelLayout layout(model_shape(options_.model, options_.context));
    EXPECT_EQ(after - before, cuda_loop_memory(layout, options_).total());
    if (!forward_only) static_cast<void>(train(loop, 1, 3));
    static_cast<void>(loop.train_loss(StepIndex(1), {}, LoopParameters(loop.parameters())));
    EXPECT_EQ(held(), after);
  }
}

// Where its workspace is the largest part of the scratch it counts.
TEST_P(CudnnTraining, CountsTheWorkspace) {
  options_.sequences = 8;
  options_.context = options_.model.context = 128;
  const ModelLayout layout(model_shape(options_.model, options_.context));
  const std::int64_t with = cuda_loop_memory(layout, options_).total();
  options_.attention = DeviceAttention::kOwn;
  const std::int64_t without = cuda_loop_memory(layout, options_).total();
  EXPECT_GT(with, without);
  EXPECT_LE(with, without + 2 * 8 * layout.shape().heads * 128 * 128);
}

// Other windows than those of a step, as evaluations have: by the own kernels.
TEST_P(CudnnTraining, EvaluatesWindowsOfAnySize) {
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  CudaLoop loop(options_, batches_.provider());
  for (const std::int64_t length : {kLength, std::int64_t{3}, std::int64_t{1}}) {
    RandomBatches batches(kVocab, 3, length);
    const TokenBatch batch = batches.at(StepIndex(1));
    const double expected = cpu.loss(batch, LoopParameters(cpu.parameters()));
    EXPECT_NEAR(loop.loss(batch, LoopParameters(loop.parameters())), expected,
                kBf16Error * expected);
  }
}

TEST_P(CudnnTraining, IsWhatTheCheckBeforeARunChecks) {
  EXPECT_EQ(device_self_check(options_), "");
  cuda::emulated::set_cudnn_missing("libcudnn.so.9 is gone");
  EXPECT_THAT(device_self_check(options_), HasSubstr("libcudnn.so.9 is gone"));
}

TEST_P(CudnnTraining, IsRefusedByNameWhereItCannotBe) {
  EXPECT_EQ(refusal(), "");
  cuda::emulated::set_cudnn_missing("libcudnn.so.9 is gone");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train.attention = \"cudnn\""),
                               HasSubstr("libcudnn.so.9 is gone"), HasSubstr("\"own\"")));
  cuda::emulated::set_cudnn_missing("");
  cuda::emulated::set_cudnn_without_plan("no engine");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train.attention = \"cudnn\""), HasSubstr("no engine"),
                               HasSubstr("\"own\"")));
  cuda::emulated::set_cudnn_without_plan("");
  options_.model.head_dim = 20;
  options_.model.d_model = 20 * options_.model.heads;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train.attention = \"cudnn\""),
                               HasSubstr("head dimension 20"), HasSubstr("\"own\"")));
  options_.model.head_dim = 16;
  options_.model.d_model = 16 * options_.model.heads;
  options_.bf16 = false;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train.attention = \"cudnn\""), HasSubstr("bf16")));
  options_.attention = DeviceAttention::kBest;
  EXPECT_EQ(refusal(), "");
}

// train.attention = "auto": with own kernels that do nothing, a run that goes on has cuDNN's.
TEST_P(CudnnTraining, IsChosenWhereItCanBe) {
  const ModelLayout layout(model_shape(options_.model, options_.context));
  options_.attention = DeviceAttention::kBest;
  const std::vector<float> cpu = on_cpu();
  cuda::emulated::set_skipped_kernels("AttentionShape");
  EXPECT_TRUE(attention_is_cudnn(layout, options_));
  EXPECT_LE(relative_error(on_device(), cpu), kBf16Error);
  cuda::emulated::set_skipped_kernels("");
  const auto goes_on_without = [&] {
    EXPECT_FALSE(attention_is_cudnn(layout, options_));
    EXPECT_EQ(device_self_check(options_), "");
    EXPECT_LE(relative_error(on_device(), cpu), kBf16Error);
  };
  cuda::emulated::set_cudnn_missing("libcudnn.so.9 is gone");
  goes_on_without();
  cuda::emulated::set_cudnn_missing("");
  cuda::emulated::set_cudnn_without_plan("no engine");
  goes_on_without();
  cuda::emulated::set_cudnn_without_plan("");
  options_.bf16 = false;
  EXPECT_FALSE(attention_is_cudnn(layout, options_));
}

ISTHMUS_FOR_EACH_MODEL(CudnnTraining);

}  // namespace
}  // namespace isthmus::this_file
