// SPDX-License-Identifier: Apache-2.0
// Losses and gradients of a training pass on the device against those of the CPU.
#include <gmock/gmock.h>

#include "core/temporary_directory.h"
#include "cuda/training_case.h"
#include "inner/model_families.h"

namespace isthmus::this_file {
namespace {

// Sums of at most some hundred floats in another order, through two layers.
constexpr double kFloatError = 2e-5;
// Operands of products are rounded by 2^-9, each of some fifteen in a row on its own.
constexpr double kBf16Error = 0.03;

class CudaGradients : public CudaModelsTest {
 protected:
  struct Pass {
    InnerStep step;
    std::vector<float> gradients;
  };
  [[nodiscard]] Pass on_device(const CudaLoopSettings& settings = {}) {
    CudaLoop loop(options_, batches_.provider(), settings);
    const InnerStep step = loop.gradients(StepIndex(1), {});
    return {step, all_gradients(loop)};
  }
  [[nodiscard]] Pass on_cpu() {
    LanguageModelLoop loop(options_, cpu_batches_.provider());
    const InnerStep step = loop.gradients(StepIndex(1), {});
    return {step, all_gradients(loop)};
  }
};

TEST_P(CudaGradients, AreThoseOfTheCpuForEachParameter) {
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  ASSERT_EQ(values_now(loop), values_now(cpu)) << "first values";
  const InnerStep step = loop.gradients(StepIndex(1), {});
  const InnerStep expected = cpu.gradients(StepIndex(1), {});
  EXPECT_NEAR(step.loss, expected.loss, kFloatError * expected.loss);
  EXPECT_EQ(step.tokens, expected.tokens);
  for (std::size_t i = 0; i < cpu.parameters().size(); ++i) {
    EXPECT_LE(relative_error(loop.gradient(i), cpu.gradient(i)), kFloatError)
        << cpu.parameters()[i].name;
  }
}

// What no other implementation can share: the loss along the gradient of each tensor, from both
// sides. The loss errs by some 2^-23 of itself, so a quotient by about kNoise; between the sides it
// is not straight.
TEST_P(CudaGradients, AreTheFiniteDifferencesOfTheLoss) {
  constexpr float kStep = 0.02f;
  constexpr double kNoise = 1e-4, kCurved = 0.02;
  CudaLoop loop(options_, batches_.provider());
  const std::vector<float> here = values_now(loop);
  static_cast<void>(loop.gradients(StepIndex(1), {}));
  const std::vector<float> gradient = all_gradients(loop);
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const CanonicalRange range = loop.parameters()[i].elements;
    double squares = 0;
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      squares += std::pow(static_cast<double>(gradient[static_cast<std::size_t>(j)]), 2);
    }
    const double norm = std::sqrt(squares);
    const auto loss_at = [&](float step) {
      std::vector<float> there = here;
      for (std::int64_t j = range.begin; j < range.end; ++j) {
        const auto at = static_cast<std::size_t>(j);
        there[at] += step * gradient[at] / static_cast<float>(norm);
      }
      set_values(loop, there);
      return loop.train_loss(StepIndex(1), {}, LoopParameters(loop.parameters())).loss;
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * static_cast<double>(kStep));
    EXPECT_NEAR(slope, norm, kNoise + kCurved * norm) << loop.parameters()[i].name;
  }
}

TEST_P(CudaGradients, InBf16AreWithinTheBudgetOfTheRounding) {
  const Pass exact = on_cpu();
  options_.bf16 = true;
  const Pass cpu = on_cpu();
  const Pass pass = on_device();
  EXPECT_NEAR(pass.step.loss, exact.step.loss, kBf16Error * exact.step.loss);
  EXPECT_LE(relative_error(pass.gradients, exact.gradients), kBf16Error);
  EXPECT_LE(relative_error(pass.gradients, cpu.gradients), kBf16Error);
  EXPECT_GT(relative_error(pass.gradients, exact.gradients), kFloatError) << "nothing is rounded";
}

TEST_P(CudaGradients, OfMicroBatchesAddUp) {
  options_.sequences = 4;
  batches_ = cpu_batches_ = RandomBatches(kVocab, options_.sequences, kLength);
  const Pass cpu = on_cpu();
  for (const std::int64_t parts : {2, 4}) {
    options_.micro_batches = parts;
    const Pass pass = on_device();
    EXPECT_NEAR(pass.step.loss, cpu.step.loss, kFloatError * cpu.step.loss) << parts;
    EXPECT_LE(relative_error(pass.gradients, cpu.gradients), kFloatError) << parts;
  }
}

TEST_P(CudaGradients, HaveTheSameBitsWhenLayersRunAgain) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    options_.recompute = Recompute::kNone;
    const Pass kept = on_device();
    options_.recompute = Recompute::kFull;
    const Pass again = on_device();
    EXPECT_EQ(again.step.loss, kept.step.loss);
    EXPECT_EQ(again.gradients, kept.gradients);
  }
}

TEST_P(CudaGradients, AreTheSameWithLogitsInChunks) {
  options_.sequences = 18;  // 144 rows in chunks of 128 and 16
  batches_ = cpu_batches_ = RandomBatches(kVocab, options_.sequences, kLength);
  const Pass cpu = on_cpu();
  const Pass pass = on_device({.logits_bytes = 1});
  EXPECT_NEAR(pass.step.loss, cpu.step.loss, kFloatError * cpu.step.loss);
  EXPECT_LE(relative_error(pass.gradients, cpu.gradients), kFloatError);
}

TEST_P(CudaGradients, OfTargetsThatDoNotCountAreNone) {
  SparseBatches sparse(false), cpu_sparse(false);
  CudaLoop loop(options_, sparse.provider());
  LanguageModelLoop cpu(options_, cpu_sparse.provider());
  const InnerStep step = loop.gradients(StepIndex(1), {});
  const InnerStep expected = cpu.gradients(StepIndex(1), {});
  EXPECT_EQ(step.tokens, kSequences * kLength - 2);
  EXPECT_NEAR(step.loss, expected.loss, kFloatError * expected.loss);
  EXPECT_LE(relative_error(all_gradients(loop), all_gradients(cpu)), kFloatError);
}

TEST_P(CudaGradients, AreAnnouncedOnceInBackwardOrder) {
  CudaLoop loop(options_, batches_.provider());
  std::vector<std::size_t> order;
  static_cast<void>(loop.gradients(StepIndex(1), [&](std::size_t i) { order.push_back(i); }));
  ASSERT_EQ(order.size(), loop.parameters().size());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], order.size() - 1 - i);
}

TEST_F(CudaLoopTest, RefusesByNameWhatHasNoKernel) {
  const auto refusal = [&](const std::string& family) {
    LanguageModelOptions options = tiny_options("llama");
    options.model = of_family(options.model, family);
    return message_of<ConfigError>([&] { CudaLoop(options, batches_.provider()); });
  };
  EXPECT_THAT(refusal("mistral"), testing::AllOf(testing::HasSubstr("mistral has sliding windows"),
                                                 testing::HasSubstr("--device cpu")));
  EXPECT_THAT(refusal("qwen2"), testing::HasSubstr("qwen2 has biases"));
  EXPECT_THAT(refusal("smollm3"), testing::HasSubstr("smollm3 has layers without positions"));
  EXPECT_THAT(refusal("olmo2"), testing::HasSubstr("olmo2 has norms after attention"));
  EXPECT_THAT(refusal("neox"), testing::HasSubstr("no CUDA kernel"));
  EXPECT_THAT(refusal("gemma"), testing::HasSubstr("gemma has norms whose weights begin at 0"));
  EXPECT_THAT(refusal("gemma2"), testing::HasSubstr("no CUDA kernel"));
}

ISTHMUS_FOR_EACH_MODEL(CudaGradients);

}  // namespace
}  // namespace isthmus::this_file
