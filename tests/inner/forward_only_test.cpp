// SPDX-License-Identifier: Apache-2.0
// Forward passes over parameters from elsewhere, in the memory of inference: what method spsa asks
// of the loop.
#include <gtest/gtest.h>

#include <algorithm>

#include "inner/inner_test.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kLength = 24;
constexpr std::int64_t kVocab = 67;

LanguageModelOptions small_options(const std::string& arch) {
  LanguageModelOptions o;
  o.model = {.arch = arch, .layers = 2, .d_model = 48, .heads = 3, .vocab = kVocab, .context = 32};
  o.inner.lr = 2e-3;
  o.context = kLength;
  o.sequences = kSequences;
  o.total_steps = 10;
  o.seed = 5;
  return o;
}

class ForwardOnlyTest : public testing::TestWithParam<const char*> {
 protected:
  LanguageModelOptions options_ = small_options(GetParam());
  RandomBatches batches_{kVocab, kSequences, kLength};
};

/// Gives matrices row by row and counts how many values it was asked for at once at most.
class RowSource final : public ParameterSource {
 public:
  explicit RowSource(std::span<const Parameter> parameters) : parameters_(parameters) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    if (parameters_[parameter].layer == kNoLayer) {
      most_ = std::max(most_, parameters_[parameter].values.size());
    }
    return parameters_[parameter].values;
  }
  [[nodiscard]] std::span<const float> rows(std::size_t parameter, std::int64_t columns,
                                            std::int64_t first, std::int64_t count) const override {
    const std::span<const float> rows = parameters_[parameter].values.subspan(
        static_cast<std::size_t>(first * columns), static_cast<std::size_t>(count * columns));
    scratch_.assign(parameters_[parameter].values.size(), 1e9f);  // what was given before is gone
    scratch_.insert(scratch_.begin() + 7, rows.begin(), rows.end());
    return std::span(scratch_).subspan(7, rows.size());
  }
  [[nodiscard]] bool by_rows() const override { return true; }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  std::span<const Parameter> parameters_;
  mutable std::vector<float> scratch_;
  mutable std::size_t most_ = 0;
};

TEST_P(ForwardOnlyTest, AForwardPassByRowsHasTheSameBits) {
  for (const bool bf16 : {false, true}) {
    for (const std::int64_t vocab : {kVocab, std::int64_t{12001}}) {  // one block of rows, several
      options_.model.vocab = vocab;
      options_.bf16 = bf16;
      options_.threads = 2;
      RandomBatches batches(vocab, kSequences, kLength);
      LanguageModelLoop loop(options_, batches.provider());
      const TokenBatch batch = batches.at(StepIndex(3));
      const RowSource rows(loop.parameters());
      EXPECT_EQ(loop.loss(batch, rows), loop.loss(batch, LoopParameters(loop.parameters())));
      EXPECT_LE(rows.most(), 48u);  // the final norm's vectors; no matrix as a whole
    }
  }
}

TEST_P(ForwardOnlyTest, TrainLossIsThatOfTheStepAndSharesAverageToIt) {
  options_.model.z_loss = 0;
  LanguageModelLoop loop(options_, batches_.provider());
  options_.forward_only = true;
  LanguageModelLoop forward(options_, batches_.provider());
  EXPECT_EQ(all_values(forward), all_values(loop));
  for (int t = 1; t <= 2; ++t) {
    const LoopParameters own(forward.parameters());
    const double whole = loop.gradients(StepIndex(t), {}).loss;
    const InnerStep step = forward.train_loss(StepIndex(t), {}, own);
    EXPECT_DOUBLE_EQ(step.loss, whole);
    EXPECT_EQ(step.tokens, kSequences * kLength);
    for (const int count : {2, 4}) {
      double sum = 0;
      for (int index = 0; index < count; ++index) {
        sum += forward.train_loss(StepIndex(t), {index, count}, own).loss;
      }
      EXPECT_NEAR(sum / count, whole, 1e-6);
    }
  }
  EXPECT_THROW(static_cast<void>(
                   forward.train_loss(StepIndex(1), {0, 3}, LoopParameters(forward.parameters()))),
               ConfigError);
}

// What is counted, not what the system reports: weights and the arena of an inference.
TEST_P(ForwardOnlyTest, ForwardOnlyHoldsTheMemoryOfInference) {
  options_.forward_only = true;
  options_.inner.optimizer = "adamw";
  LanguageModelLoop loop(options_, batches_.provider());
  const auto weights = static_cast<std::size_t>(loop.layout().elements()) * sizeof(float);
  const auto arena = static_cast<std::size_t>(LanguageModel<float>::arena_bytes(
      loop.layout(), kSequences * kLength, LanguageModel<float>::Purpose::kInference));
  constexpr std::size_t kRounding = 2 * 64;  // buffers are whole cache lines
  EXPECT_LE(loop.held_bytes(), weights + arena + kRounding);
  options_.forward_only = false;
  LanguageModelLoop training(options_, batches_.provider());
  EXPECT_GT(training.held_bytes(), 4 * weights);
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardOnlyTest, testing::Values("gpt2", "llama"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace isthmus::this_file
