// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include "kernels/kernel_test.h"

namespace isthmus::kernels::this_file {
namespace {

struct Case {
  std::int64_t tokens, channels, vocab;
  double z_loss;
  double cap = 0;
};
constexpr Case kCases[] = {{1, 3, 2, 0.0},      {7, 5, 11, 0.01},      {300, 24, 100, 0.0},
                           {65, 16, 257, 1e-3}, {7, 5, 11, 0.01, 1.5}, {300, 24, 100, 0.0, 4}};
// Over one chunk of logits: 2^24 of them and more.
constexpr Case kLong = {1100, 4, 30011, 0.0};

template <typename Real>
struct HeadRun {
  explicit HeadRun(const Case& c)
      : hidden(normal_values<Real>(c.tokens * c.channels, 1)),
        weight(normal_values<Real>(c.vocab * c.channels, 2)),
        targets(static_cast<std::size_t>(c.tokens)),
        d_hidden(hidden.size(), Real{9}),
        d_weight(weight.size(), Real{1}) {
    const Rng rng{5, Stream::kTestData};
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(c.vocab), i));
    }
    if (c.tokens > 2) targets[1] = -1;
    args = {.tokens = c.tokens,
            .channels = c.channels,
            .vocab = c.vocab,
            .hidden = hidden.data(),
            .weight = weight.data(),
            .targets = targets.data(),
            .gradient_scale = 1 / static_cast<double>(c.tokens),
            .cap = c.cap,
            .z_loss = c.z_loss,
            .d_hidden = d_hidden.data(),
            .d_weight = d_weight.data()};
  }
  HeadRun(const HeadRun&) = delete;
  std::vector<Real> hidden, weight;
  std::vector<std::int32_t> targets;
  std::vector<Real> d_hidden, d_weight;
  CrossEntropy<Real> args;
};

/// Loss and z-loss of one token by the definition.
template <typename Real>
std::pair<double, double> naive_loss(const HeadRun<Real>& run, std::int64_t t) {
  const std::int32_t target = run.targets[static_cast<std::size_t>(t)];
  if (target < 0) return {0, 0};
  double z = 0;
  double chosen = 0;
  for (std::int64_t j = 0; j < run.args.vocab; ++j) {
    double logit = 0;
    for (std::int64_t i = 0; i < run.args.channels; ++i) {
      logit += static_cast<double>(run.args.hidden[t * run.args.channels + i]) *
               static_cast<double>(run.args.weight[j * run.args.channels + i]);
    }
    if (run.args.cap > 0) logit = run.args.cap * std::tanh(logit / run.args.cap);
    z += std::exp(logit);
    if (j == target) chosen = logit;
  }
  return {std::log(z) - chosen, run.args.z_loss * std::log(z) * std::log(z)};
}

TEST(CrossEntropyReference, LossIsTheDefinition) {
  ThreadTeam team(2);
  for (const Case& c : kCases) {
    HeadRun<double> run(c);
    const CrossEntropySum sum = cross_entropy(team, run.args);
    double loss = 0;
    double z_loss = 0;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const auto [token, z] = naive_loss(run, t);
      loss += token;
      z_loss += z;
    }
    EXPECT_NEAR(sum.loss, loss, 1e-10);
    EXPECT_NEAR(sum.z_loss, z_loss, 1e-10);
    EXPECT_EQ(sum.counted, c.tokens - (c.tokens > 2 ? 1 : 0));
  }
}

TEST(CrossEntropyReference, GradientsMatchCentralDifferences) {
  ThreadTeam team(1);
  constexpr double kStep = 1e-6;
  HeadRun<double> run(kCases[1]);
  cross_entropy(team, run.args);
  CrossEntropy<double> forward = run.args;
  forward.d_hidden = nullptr;
  forward.d_weight = nullptr;
  const auto difference = [&](double& value) {
    const auto objective = [&] {
      const CrossEntropySum sum = cross_entropy(team, forward);
      return forward.gradient_scale * (sum.loss + sum.z_loss);
    };
    const double kept = value;
    value = kept + kStep;
    const double above = objective();
    value = kept - kStep;
    const double below = objective();
    value = kept;
    return (above - below) / (2 * kStep);
  };
  for (std::size_t i = 0; i < run.hidden.size(); ++i) {
    EXPECT_NEAR(run.d_hidden[i], difference(run.hidden[i]), 1e-8);  // overwritten
  }
  for (std::size_t i = 0; i < run.weight.size(); ++i) {
    EXPECT_NEAR(run.d_weight[i] - 1, difference(run.weight[i]), 1e-8);  // accumulated on a one
  }
}

using CrossEntropyTest = IsaTest;
ISTHMUS_EVERY_ISA(CrossEntropyTest);

TEST_P(CrossEntropyTest, AgreesWithDoubleWithinRounding) {
  ThreadTeam team(2);
  for (const Case& c : kCases) {
    HeadRun<float> fast(c);
    HeadRun<double> exact(c);
    const CrossEntropySum sum = cross_entropy(team, fast.args);
    const CrossEntropySum expected = cross_entropy(team, exact.args);
    // A logit below 20 carries `channels` roundings; the loss has its absolute error, a probability
    // it as a relative one.
    const double logit_error = 20 * kFloatEpsilon * (2 + static_cast<double>(c.channels) / 4);
    EXPECT_NEAR(sum.loss, expected.loss, logit_error * static_cast<double>(c.tokens));
    EXPECT_NEAR(sum.z_loss, expected.z_loss, logit_error * static_cast<double>(c.tokens));
    EXPECT_EQ(sum.counted, expected.counted);
    for (std::size_t i = 0; i < fast.d_hidden.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(fast.d_hidden[i]), exact.d_hidden[i], 4 * logit_error);
    }
    for (std::size_t i = 0; i < fast.d_weight.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(fast.d_weight[i]), exact.d_weight[i], 4 * logit_error);
    }
  }
}

TEST_P(CrossEntropyTest, ForwardAloneGivesTheSameLoss) {
  ThreadTeam team(2);
  for (const Case& c : kCases) {
    HeadRun<float> run(c);
    CrossEntropy<float> forward = run.args;
    forward.d_hidden = nullptr;
    forward.d_weight = nullptr;
    EXPECT_EQ(cross_entropy(team, forward).loss, cross_entropy(team, run.args).loss);
  }
}

TEST_P(CrossEntropyTest, BitsDoNotDependOnTheTeam) {
  for (const Case& c : kCases) {
    std::vector<float> first;
    double first_loss = 0;
    for (const int size : kTeamSizes) {
      ThreadTeam team(size);
      HeadRun<float> run(c);
      const double loss = cross_entropy(team, run.args).loss;
      run.d_hidden.insert(run.d_hidden.end(), run.d_weight.begin(), run.d_weight.end());
      if (size == 1) {
        first = run.d_hidden;
        first_loss = loss;
      }
      ASSERT_EQ(run.d_hidden, first) << "team of " << size;
      ASSERT_EQ(loss, first_loss) << "team of " << size;
    }
  }
}

TEST(CrossEntropy, ChunksOfTokensJoinSeamlessly) {
  ThreadTeam team(2);
  HeadRun<float> run(kLong);
  const CrossEntropySum sum = cross_entropy(team, run.args);
  EXPECT_EQ(sum.counted, kLong.tokens - 1);
  // Of single tokens, at the chunk's borders too, and of two halves that are a chunk each.
  const auto loss_of = [&](std::int64_t begin, std::int64_t end) {
    CrossEntropy<float> part = run.args;
    part.tokens = end - begin;
    part.hidden += begin * kLong.channels;
    part.targets += begin;
    part.d_hidden = part.d_weight = nullptr;
    return cross_entropy(team, part).loss;
  };
  for (const std::int64_t t :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{511}, std::int64_t{512}, kLong.tokens - 1}) {
    EXPECT_NEAR(loss_of(t, t + 1), naive_loss(run, t).first, 1e-4);
  }
  const std::int64_t half = kLong.tokens / 2;
  EXPECT_NEAR(sum.loss, loss_of(0, half) + loss_of(half, kLong.tokens), 1e-2);
  // Each token's gradient over the vocabulary adds to zero, so the columns of d_weight keep the sum
  // of the ones they began with.
  for (std::int64_t i = 0; i < kLong.channels; ++i) {
    double column = 0;
    for (std::int64_t j = 0; j < kLong.vocab; ++j) {
      column +=
          static_cast<double>(run.d_weight[static_cast<std::size_t>(j * kLong.channels + i)]) - 1;
    }
    EXPECT_NEAR(column, 0, 1e-2);  // 30011 roundings of values near one
  }
}

}  // namespace
}  // namespace isthmus::kernels::this_file
