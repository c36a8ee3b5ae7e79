// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/language_model_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/schema/recompute.h"
#include "inner/inner_test.h"
#include "inner/loop/model_cost.h"

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

/// Losses and final parameters of some steps.
struct Trajectory {
  std::vector<double> losses, norms;
  std::vector<float> values;
};

Trajectory train(const LanguageModelOptions& options, int steps = 3) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Trajectory out;
  for (int t = 1; t <= steps; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t));
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
  }
  out.values = all_values(loop);
  return out;
}

class LanguageModelLoopTest : public testing::TestWithParam<const char*> {
 protected:
  LanguageModelOptions options_ = small_options(GetParam());
  RandomBatches batches_{kVocab, kSequences, kLength};
};

TEST_P(LanguageModelLoopTest, HasTheSameBitsWhateverTheNumberOfThreads) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    options_.threads = 1;
    const Trajectory one = train(options_);
    for (const int threads : {1, 2, 3}) {
      options_.threads = threads;
      const Trajectory other = train(options_);
      EXPECT_EQ(other.losses, one.losses) << threads << " threads";
      EXPECT_EQ(other.norms, one.norms) << threads << " threads";
      EXPECT_EQ(other.values, one.values) << threads << " threads";
    }
  }
}

TEST_P(LanguageModelLoopTest, RecomputedActivationsGiveTheSameBits) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    options_.recompute = Recompute::kNone;
    const Trajectory kept = train(options_);
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
      options_.recompute = recompute;
      const Trajectory again = train(options_);
      EXPECT_EQ(again.losses, kept.losses) << recompute_name(recompute);
      EXPECT_EQ(again.norms, kept.norms) << recompute_name(recompute);
      EXPECT_EQ(again.values, kept.values) << recompute_name(recompute);
    }
  }
}

// A token of a layer keeps the outputs of two norms less and that of the activation, of which there
// is one for all layers instead; GELU of bfloat16 is kept.
TEST_P(LanguageModelLoopTest, SelectiveRecomputationSavesWhatItMakesAgain) {
  const bool gpt2 = options_.model.arch == "gpt2";
  for (const std::int64_t d_ff : {96, 200}) {  // less than queries, keys and values, and more
    options_.model.d_ff = d_ff;
    const ModelLayout layout(model_shape(options_.model, options_.context));
    const ModelShape& s = layout.shape();
    constexpr std::int64_t kTokens = kSequences * kLength;  // a multiple of what arrays round to
    for (const bool bf16 : {false, true}) {
      const auto activations = [&](Recompute recompute) {
        return training_memory(layout, options_.inner, kTokens, recompute, bf16).activations;
      };
      const std::int64_t width = bf16 ? 2 : 4, qkv = 3 * s.d_model;
      const std::int64_t activated =
          gpt2 ? std::max(d_ff, qkv - d_ff) : std::max(d_ff, s.query_width());
      const std::int64_t working = gpt2 ? std::max(d_ff, qkv) : activated;
      const bool remade = !(gpt2 && bf16);
      const std::int64_t saved =
          s.layers * (2 * s.d_model + (remade ? activated : 0)) - (remade ? working : 0);
      EXPECT_EQ(activations(Recompute::kNone) - activations(Recompute::kSelective),
                kTokens * width * saved)
          << d_ff << (bf16 ? " bf16" : " fp32");
      EXPECT_LT(activations(Recompute::kFull), activations(Recompute::kSelective));
    }
  }
}

/// Windows of a text of 16 words, which the model learns to a third of its first loss.
class WordBatches {
 public:
  BatchProvider provider() {
    return [this](StepIndex t) {
      const Rng rng{23, Stream::kTestData};
      tokens_.clear();
      for (std::int64_t i = 0; i <= kSequences * kLength; ++i) {
        const auto word = rng.below(16, static_cast<std::uint64_t>(t.value() * 1000 + i / 4));
        tokens_.push_back(
            static_cast<std::int32_t>((word * 4 + static_cast<std::uint64_t>(i % 4))));
      }
      const std::span<const std::int32_t> all = tokens_;
      return TokenBatch{all.first(all.size() - 1), all.subspan(1), kSequences, kLength};
    };
  }

 private:
  std::vector<std::int32_t> tokens_;
};

TEST_P(LanguageModelLoopTest, Bf16FollowsFloatWhileItLearns) {
  constexpr int kSteps = 50;
  constexpr double kTolerance = 5e-3;
  std::vector<double> losses[2];
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    options_.total_steps = kSteps;
    WordBatches batches;
    LanguageModelLoop loop(options_, batches.provider());
    for (int t = 1; t <= kSteps; ++t) losses[bf16].push_back(loop.train_step(StepIndex(t)).loss);
  }
  EXPECT_LT(losses[0].back(), 0.4 * losses[0].front());
  EXPECT_NE(losses[0], losses[1]);
  for (int t = 0; t < kSteps; ++t) {
    const auto i = static_cast<std::size_t>(t);
    EXPECT_NEAR(losses[1][i] / losses[0][i], 1, kTolerance) << "step " << t + 1;
  }
}

TEST_P(LanguageModelLoopTest, StartsNearTheLossOfAUniformGuess) {
  // Logits of weights of deviation 0.02 over 48 normed values deviate by 0.02 sqrt(48) = 0.14,
  // which adds half its square to log V, and its square again by chance of the targets.
  EXPECT_NEAR(train(options_, 1).losses[0], std::log(static_cast<double>(kVocab)), 0.03);
}

TEST_P(LanguageModelLoopTest, AccumulatedMicroBatchesEqualTheWholeBatch) {
  // The sums of a gradient are grouped differently: some 1e-7 of its norm. AdamW divides by the
  // gradient's size, so parameters are compared after an SGD step.
  constexpr double kGrouping = 1e-6;
  options_.inner.optimizer = "sgd";
  options_.inner.lr = 1.0;
  options_.inner.clip = 0;
  const Trajectory whole = train(options_, 1);
  for (const std::int64_t parts : {2, 4}) {
    options_.micro_batches = parts;
    const Trajectory cut = train(options_, 1);
    EXPECT_NEAR(cut.losses[0], whole.losses[0], kGrouping * whole.losses[0]);
    EXPECT_NEAR(cut.norms[0], whole.norms[0], kGrouping * whole.norms[0]);
    double squares = 0;
    for (std::size_t i = 0; i < whole.values.size(); ++i) {
      squares += std::pow(static_cast<double>(cut.values[i] - whole.values[i]), 2);
    }
    EXPECT_LE(std::sqrt(squares), kGrouping * whole.norms[0]) << parts << " parts";
  }
}

TEST_P(LanguageModelLoopTest, MeanOfHalfBatchGradientsIsTheWholeBatchGradient) {
  LanguageModelLoop whole(options_, batches_.provider());
  static_cast<void>(whole.gradients(StepIndex(1), {}));
  LanguageModelOptions half_options = options_;
  half_options.sequences = kSequences / 2;
  std::vector<std::vector<float>> mean(whole.parameters().size());
  for (int half = 0; half < 2; ++half) {
    LanguageModelLoop loop(half_options, [&](StepIndex t) {
      const TokenBatch all = batches_.at(t);
      const auto size = static_cast<std::size_t>(kSequences / 2 * kLength);
      const auto from = static_cast<std::size_t>(half) * size;
      return TokenBatch{all.inputs.subspan(from, size), all.targets.subspan(from, size),
                        kSequences / 2, kLength};
    });
    static_cast<void>(loop.gradients(StepIndex(1), {}));
    for (std::size_t p = 0; p < mean.size(); ++p) {
      const std::span<const float> g = loop.gradient(p);
      mean[p].resize(g.size());
      for (std::size_t i = 0; i < g.size(); ++i) mean[p][i] += g[i] / 2;
    }
  }
  for (std::size_t p = 0; p < mean.size(); ++p) {
    const std::span<const float> g = whole.gradient(p);
    for (std::size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(mean[p][i], g[i], 1e-6) << p << " " << i;
  }
}

TEST_P(LanguageModelLoopTest, AnnouncesEachGradientOnceInBackwardOrder) {
  for (const bool tied : {true, false}) {
    options_.model.tied = tied;
    options_.micro_batches = 2;
    LanguageModelLoop loop(options_, batches_.provider());
    std::vector<std::size_t> order;
    const InnerStep step =
        loop.gradients(StepIndex(1), [&](std::size_t parameter) { order.push_back(parameter); });
    EXPECT_EQ(step.tokens, kSequences * kLength);
    std::vector<std::size_t> expected(loop.parameters().size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = expected.size() - 1 - i;
    EXPECT_EQ(order, expected) << (tied ? "tied" : "untied");
  }
}

TEST_P(LanguageModelLoopTest, AnnouncedGradientsDoNotChangeAnyMore) {
  LanguageModelLoop loop(options_, batches_.provider());
  std::vector<std::vector<float>> seen(loop.parameters().size());
  static_cast<void>(loop.gradients(StepIndex(1), [&](std::size_t p) {
    const std::span<const float> g = loop.gradient(p);
    seen[p].assign(g.begin(), g.end());
  }));
  for (std::size_t p = 0; p < seen.size(); ++p) {
    const std::span<const float> g = loop.gradient(p);
    EXPECT_TRUE(std::equal(g.begin(), g.end(), seen[p].begin(), seen[p].end())) << p;
  }
}

TEST_P(LanguageModelLoopTest, GradientsThenApplyIsATrainStep) {
  LanguageModelLoop one(options_, batches_.provider());
  LanguageModelLoop other(options_, batches_.provider());
  const InnerStep step = one.train_step(StepIndex(1));
  const InnerStep parts = other.gradients(StepIndex(1), {});
  EXPECT_EQ(parts.loss, step.loss);
  EXPECT_EQ(other.apply_gradients(StepIndex(1)), step.grad_norm);
  EXPECT_EQ(all_values(other), all_values(one));
}

TEST_P(LanguageModelLoopTest, LossReadsTheGivenParametersWhereverTheyLie) {
  LanguageModelLoop loop(options_, batches_.provider());
  const InnerStep step = loop.gradients(StepIndex(1), {});
  const TokenBatch batch = batches_.at(StepIndex(1));
  const CopiedParameters copies(loop.parameters());
  const LoopParameters in_place(loop.parameters());
  EXPECT_EQ(loop.loss(batch, in_place), step.loss);
  EXPECT_EQ(loop.loss(batch, copies), step.loss);
  static_cast<void>(loop.train_step(StepIndex(1)));
  EXPECT_EQ(loop.loss(batch, copies), step.loss);
  EXPECT_LT(loop.loss(batch, in_place), step.loss);
}

TEST_P(LanguageModelLoopTest, LossOfManySequencesIsTheMeanOverThem) {
  LanguageModelLoop loop(options_, batches_.provider());
  constexpr std::int64_t kMany = 11;
  constexpr std::int64_t kShort = 7;
  RandomBatches many(kVocab, kMany, kShort);
  const TokenBatch batch = many.at(StepIndex(1));
  const LoopParameters parameters(loop.parameters());
  double sum = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    sum += loop.loss({batch.inputs.subspan(i * kShort, kShort),
                      batch.targets.subspan(i * kShort, kShort), 1, kShort},
                     parameters);
  }
  EXPECT_NEAR(loop.loss(batch, parameters), sum / kMany, 1e-6);
}

TEST_P(LanguageModelLoopTest, ResumedRunIsTheUninterruptedOne) {
  for (const char* optimizer : {"adamw", "sgd", "muon"}) {
    options_.inner.optimizer = optimizer;
    options_.inner.momentum = options_.inner.optimizer == "adamw" ? 0.0 : 0.9;
    const Trajectory straight = train(options_, 4);
    LanguageModelLoop first(options_, batches_.provider());
    for (int t = 1; t <= 2; ++t) static_cast<void>(first.train_step(StepIndex(t)));
    MemoryState state;
    first.save(state);
    LanguageModelLoop second(options_, batches_.provider());
    second.load(state);
    for (std::size_t p = 0; p < first.parameters().size(); ++p) {
      const std::span<const float> from = first.parameters()[p].values;
      std::copy(from.begin(), from.end(), second.parameters()[p].values.begin());
    }
    for (int t = 3; t <= 4; ++t) {
      EXPECT_EQ(second.train_step(StepIndex(t)).loss,
                straight.losses[static_cast<std::size_t>(t) - 1]);
    }
    EXPECT_EQ(all_values(second), straight.values) << optimizer;
  }
}

TEST_P(LanguageModelLoopTest, RefusesTheStateOfAnotherOptimizer) {
  LanguageModelLoop adamw(options_, batches_.provider());
  MemoryState state;
  adamw.save(state);
  options_.inner.optimizer = "sgd";
  LanguageModelLoop sgd(options_, batches_.provider());
  EXPECT_THROW(sgd.load(state), RunError);
}

TEST_P(LanguageModelLoopTest, ResetOptimizerForgetsMoments) {
  LanguageModelLoop loop(options_, batches_.provider());
  const std::vector<float> start = all_values(loop);
  static_cast<void>(loop.train_step(StepIndex(1)));
  const std::vector<float> after_one = all_values(loop);
  loop.reset_optimizer();
  std::size_t at = 0;
  for (const Parameter& p : loop.parameters()) {
    std::copy_n(start.begin() + static_cast<std::ptrdiff_t>(at), p.values.size(), p.values.begin());
    at += p.values.size();
  }
  static_cast<void>(loop.train_step(StepIndex(1)));
  EXPECT_EQ(all_values(loop), after_one);
}

TEST_P(LanguageModelLoopTest, DivergedStepNamesItselfAndChangesNothing) {
  LanguageModelLoop loop(options_, batches_.provider());
  static_cast<void>(loop.train_step(StepIndex(1)));
  static_cast<void>(loop.gradients(StepIndex(2), {}));
  loop.gradient(1)[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = all_values(loop);
  try {
    static_cast<void>(loop.apply_gradients(StepIndex(2)));
    FAIL() << "a gradient that is not a number was applied";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("step 2"));
  }
  EXPECT_EQ(all_values(loop), before);
  loop.parameters()[0].values[0] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(static_cast<void>(loop.train_step(StepIndex(3))), RunError);
}

TEST_P(LanguageModelLoopTest, RefusesSizesThatDoNotFit) {
  const auto refused = [&](const auto& change) {
    LanguageModelOptions options = options_;
    change(options);
    EXPECT_THROW(LanguageModelLoop(options, batches_.provider()), ConfigError);
  };
  refused([](LanguageModelOptions& o) { o.micro_batches = 3; });
  refused([](LanguageModelOptions& o) { o.micro_batches = 0; });
  refused([](LanguageModelOptions& o) { o.sequences = 0; });
  refused([](LanguageModelOptions& o) { o.context = 33; });
  refused([](LanguageModelOptions& o) { o.inner.optimizer = "adam"; });
  refused([](LanguageModelOptions& o) { o.inner.schedule = "cosinus"; });
}

INSTANTIATE_TEST_SUITE_P(Models, LanguageModelLoopTest, testing::Values("gpt2", "llama"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace isthmus::this_file
