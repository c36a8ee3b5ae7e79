// SPDX-License-Identifier: Apache-2.0
// Method spsa as a trainer: it learns, survives bad slopes, keeps to its memory, refuses bad keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inner/loop/language_model_loop.h"
#include "kernels/spsa_code.h"
#include "outer/methods/spsa.h"
#include "outer/parts/spsa_weights.h"
#include "spsa_runs.h"

namespace isthmus::this_file {
namespace {

using outer::SpsaLog;
using testing_support::odd_tensors;
using testing_support::QuadraticLoop;
using testing_support::spsa_options;

/// Logistic regression on points of two classes; every worker its own.
class ClassificationLoop final : public InnerLoop {
 public:
  explicit ClassificationLoop(int worker)
      : rng_(static_cast<std::uint64_t>(worker), Stream::kTestData) {
    parameters_.push_back({.name = "w",
                           .layer = 0,
                           .shape = {kFeatures},
                           .elements = {0, kFeatures},
                           .values = weights_});
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override { throw std::logic_error("unused"); }
  InnerStep train_loss(StepIndex t, SampleShare share, const ParameterSource& source) override {
    const std::span<const float> w = source.values(0);
    double sum = 0;
    constexpr int kPoints = 64;
    for (int i = 0; i < kPoints; ++i) {
      const auto point = static_cast<std::uint64_t>((t.value() * 64 + share.index) * kPoints + i);
      const double label = i % 2 == 0 ? 1 : -1;
      double score = 0;
      for (std::uint32_t k = 0; k < kFeatures; ++k) {
        score += static_cast<double>(w[k]) * (rng_.normal(point, k) + 0.5 * label);
      }
      sum += std::log1p(std::exp(-label * score));
    }
    const double poison = poison_at_ == t ? poison_ * static_cast<double>(w[0]) : 0;
    return {.loss = sum / kPoints + poison, .grad_norm = 0, .tokens = kPoints};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.02; }
  /// Adds `slope` w[0] to the loss of step t.
  void poison(StepIndex t, double slope) {
    poison_at_ = t;
    poison_ = slope;
  }

 private:
  static constexpr std::int64_t kFeatures = 20;
  Rng rng_;
  std::vector<float> weights_ = std::vector<float>(kFeatures);
  std::vector<Parameter> parameters_;
  StepIndex poison_at_;
  double poison_ = 0;
};

double last_loss(const OuterOptions& options, int steps = 400) {
  double loss = 0;
  run_in_process(2, [&](WorkerContext& context) {
    ClassificationLoop inner(context.rank.value());
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    double tail = 0;
    for (int t = 1; t <= steps; ++t) {
      const double now = strategy->step().inner.loss;
      tail += t > steps - 20 ? now / 20 : 0;
    }
    if (context.rank == WorkerId(0)) loss = tail;
  });
  return loss;
}

// Oracle (8). Points at distance 0.5 sqrt(20) of the border: the best loss is about 0.05.
TEST(Spsa, LearnsAToyClassification) {
  constexpr double kStart = 0.6931;  // log 2
  const double mean = last_loss(spsa_options(2));
  EXPECT_LT(mean, 0.35 * kStart);
  OuterOptions sign = spsa_options(2);
  sign.spsa.sign_only = true;
  EXPECT_LT(last_loss(sign), 0.5 * kStart);
  OuterOptions root = spsa_options(4);
  root.spsa.divide_by_sqrt = true;
  EXPECT_LT(last_loss(root), 0.35 * kStart);
}

TEST(Spsa, NotANumberIsDroppedAndOutliersAreClipped) {
  for (const double clip : {10.0, 0.0}) {
    run_in_process(1, [&](WorkerContext& context) {
      ClassificationLoop inner(0);
      OuterOptions options = spsa_options();
      options.spsa.clip = clip;
      const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
      inner.poison(StepIndex(31), std::numeric_limits<double>::quiet_NaN());
      for (int t = 1; t <= 31; ++t) (void)strategy->step();
      inner.poison(StepIndex(32), 1e4);
      (void)strategy->step();
      const SpsaLog log = SpsaLog::parse(strategy->log()).value();
      const auto code = [&](int t) { return log.record(StepIndex(t)).codes[0]; };
      EXPECT_EQ(code(31), 0);
      EXPECT_TRUE(std::ranges::all_of(inner.parameters()[0].values,
                                      [](float w) { return std::isfinite(w); }));
      std::vector<int> magnitudes;
      for (int t = 1; t <= 30; ++t) magnitudes.push_back(code(t) & 0x7f);
      std::ranges::sort(magnitudes);
      // The largest of 30 is below ten medians here, so only the outlier meets the limit.
      const int limit = magnitudes[15] + 27;  // 8 log2(10), rounded
      EXPECT_LT(magnitudes.back(), limit);
      EXPECT_EQ(code(32) & 0x7f, clip == 0 ? 127 : limit);
    });
  }
}

// Oracle (7), counted in allocations: one layer and a block of rows beyond an inference.
TEST(Spsa, PeakMemoryIsInferenceAndOneLayer) {
  for (const char* arch : {"gpt2", "llama"}) {
    LanguageModelOptions options;
    options.model = {
        .arch = arch, .layers = 16, .d_model = 128, .heads = 4, .vocab = 40000, .context = 64};
    options.context = 64;
    options.sequences = 8;
    options.forward_only = true;
    std::vector<std::int32_t> tokens(8 * 64 + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i * 7919 % 40000);
    }
    const TokenBatch batch{std::span(tokens).first(512), std::span(tokens).subspan(1), 8, 64};
    LanguageModelLoop inner(options, [&](StepIndex) { return batch; });
    std::size_t largest = 0;
    for (int l = 0; l < 16; ++l) {
      largest =
          std::max(largest, static_cast<std::size_t>(inner.layout().layer_elements(l).size()));
    }
    run_in_process(1, [&](WorkerContext& context) {
      const OuterOptions outer_options = spsa_options(2);
      outer::Spsa strategy({.name = "spsa"}, outer_options, inner, context.exchange,
                           outer::spsa_weights_on_host(inner, outer_options.spsa.run_key,
                                                       outer_options.spsa.threads));
      (void)strategy.step();
      constexpr std::size_t kRows = std::size_t{1} << 21;  // a block of rows of the output head
      constexpr std::size_t kSlack = std::size_t{1} << 16;
      EXPECT_LE(strategy.scratch_bytes(), largest * sizeof(float) + kRows + kSlack) << arch;
      EXPECT_GE(strategy.scratch_bytes(), largest * sizeof(float)) << arch;
      constexpr double kMost = 1.10;
      const auto inference = static_cast<double>(inner.held_bytes());
      EXPECT_LE(inference + static_cast<double>(strategy.scratch_bytes()), kMost * inference)
          << arch;
    });
  }
}

TEST(Spsa, RefusesWhatItCannotUse) {
  const auto refusal = [](const OuterOptions& options) -> std::string {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(odd_tensors(0));
      try {
        (void)make_outer_strategy("spsa", options, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal({.H = 4}), HasSubstr("outer.H = 4: method spsa does not use it"));
  EXPECT_THAT(refusal({.codec = "bf16"}), HasSubstr("outer.codec = bf16"));
  EXPECT_THAT(refusal({.spsa = {.eps = 0}}), HasSubstr("outer.eps = 0"));
  EXPECT_THAT(refusal({.spsa = {.samples = 0}}), HasSubstr("outer.samples = 0"));
  EXPECT_THAT(refusal({.spsa = {.clip = -1}}), HasSubstr("outer.clip = -1"));
  EXPECT_THAT(refusal({.spsa = {.scale_log2 = 65}}), HasSubstr("outer.code_scale"));
  EXPECT_EQ(refusal({}), "");
}

}  // namespace
}  // namespace isthmus::this_file
