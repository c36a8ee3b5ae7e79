// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include "kernels/embedding.h"
#include "kernels/kernel_test.h"

namespace isthmus::kernels::this_file {
namespace {

constexpr std::int64_t kSize = 9001;  // two whole blocks and a tail that fills no vector

using OptimizerTest = IsaTest;
ISTHMUS_EVERY_ISA(OptimizerTest);

TEST_P(OptimizerTest, AdamWFollowsItsDefinitionOverSteps) {
  ThreadTeam team(2);
  const AdamWOptions options{.lr = 3e-3,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .gradient_scale = 0.5};
  std::vector<float> p = normal_values<float>(kSize, 1);
  std::vector<float> m(p.size());
  std::vector<float> v(p.size());
  std::vector<double> exact_p = in_double(p);
  std::vector<double> exact_m(p.size());
  std::vector<double> exact_v(p.size());
  for (int step = 1; step <= 5; ++step) {
    const std::vector<float> g = normal_values<float>(kSize, 10 + static_cast<std::uint64_t>(step));
    AdamWOptions now = options;
    now.step = step;
    adamw_step(team, now, kSize, p.data(), g.data(), m.data(), v.data());
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double gradient = 0.5 * static_cast<double>(g[i]);
      exact_m[i] = 0.9 * exact_m[i] + 0.1 * gradient;
      exact_v[i] = 0.95 * exact_v[i] + 0.05 * gradient * gradient;
      const double corrected_m = exact_m[i] / (1 - std::pow(0.9, step));
      const double corrected_v = exact_v[i] / (1 - std::pow(0.95, step));
      exact_p[i] -= 3e-3 * 0.1 * exact_p[i];
      exact_p[i] -= 3e-3 * corrected_m / (std::sqrt(corrected_v) + 1e-8);
    }
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    // Five steps of a few roundings of values below 5; the moments' errors are scaled by lr.
    ASSERT_NEAR(static_cast<double>(p[i]), exact_p[i], 5 * 8 * kFloatEpsilon);
    ASSERT_NEAR(static_cast<double>(m[i]), exact_m[i], 5 * 4 * kFloatEpsilon);
    ASSERT_NEAR(static_cast<double>(v[i]), exact_v[i], 5 * 4 * kFloatEpsilon);
  }
}

TEST_P(OptimizerTest, BitsAreThoseOfPortableCodeAndOfOneThread) {
  const AdamWOptions options{.lr = 3e-3, .weight_decay = 0.1, .step = 3};
  const std::vector<float> g = normal_values<float>(kSize, 2);
  const auto run = [&](int size) {
    ThreadTeam team(size);
    std::vector<float> p = normal_values<float>(kSize, 1);
    std::vector<float> m = normal_values<float>(kSize, 3);
    std::vector<float> v = normal_values<float>(kSize, 4);
    for (float& value : v) value = value * value;
    adamw_step(team, options, kSize, p.data(), g.data(), m.data(), v.data());
    return p;
  };
  const auto norm = [&](int size) {
    ThreadTeam team(size);
    return squared_norm(team, kSize, g.data());
  };
  use_isa(Isa::kPortable);
  const std::vector<float> expected = run(1);
  const double expected_norm = norm(1);
  use_isa(GetParam());
  for (const int size : kTeamSizes) {
    EXPECT_EQ(run(size), expected) << "team of " << size;
    EXPECT_EQ(norm(size), expected_norm) << "team of " << size;
  }
}

TEST_P(OptimizerTest, SquaredNormIsExactInDouble) {
  ThreadTeam team(2);
  const std::vector<float> x = whole_values<float>(kSize, 1);
  double exact = 0;
  for (const float value : x) exact += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_EQ(squared_norm(team, kSize, x.data()), exact);
}

/// torch.optim.SGD's documented update, one element.
double sgd_element(const SgdOptions& o, double p, double g, double& buffer, int step) {
  g = g + o.weight_decay * p;
  buffer = step == 1 ? g : o.momentum * buffer + g;
  if (o.momentum == 0) return p - o.lr * g;
  return p - o.lr * (o.nesterov ? g + o.momentum * buffer : buffer);
}

TEST(Sgd, FollowsTorchWithAndWithoutMomentum) {
  ThreadTeam team(2);
  const SgdOptions variants[] = {{.lr = 0.1},
                                 {.lr = 0.1, .momentum = 0.9},
                                 {.lr = 0.7, .momentum = 0.9, .nesterov = true},
                                 {.lr = 0.1, .momentum = 0.5, .weight_decay = 0.01}};
  for (SgdOptions options : variants) {
    std::vector<double> p = normal_values<double>(100, 1);
    std::vector<double> buffer(p.size(), 77.0);  // what the first step must not read
    std::vector<double> exact = p;
    std::vector<double> exact_buffer(p.size());
    for (int step = 1; step <= 4; ++step) {
      const std::vector<double> g =
          normal_values<double>(100, 10 + static_cast<std::uint64_t>(step));
      options.first_step = step == 1;
      sgd_step(team, options, 100, p.data(), g.data(), buffer.data());
      for (std::size_t i = 0; i < p.size(); ++i) {
        exact[i] = sgd_element(options, exact[i], g[i], exact_buffer[i], step);
      }
    }
    for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], exact[i], 1e-13);
  }
}

TEST(Embedding, GathersAndScattersInRowOrder) {
  constexpr std::int64_t kRows = 60, kSeq = 20, kChannels = 70, kVocab = 9;
  std::vector<std::int32_t> ids;
  const Rng rng{3, Stream::kTestData};
  for (std::uint64_t i = 0; i < kRows; ++i)
    ids.push_back(static_cast<std::int32_t>(rng.below(kVocab, i)));
  const Embedding<float> e{
      .rows = kRows, .seq = kSeq, .channels = kChannels, .vocab = kVocab, .ids = ids.data()};
  const std::vector<float> table = whole_values<float>(kVocab * kChannels, 1);
  const std::vector<float> positions = whole_values<float>(kSeq * kChannels, 2);
  const std::vector<float> dy = normal_values<float>(kRows * kChannels, 4);
  std::vector<float> d_table(table.size(), 1.0f);
  std::vector<float> d_positions(positions.size(), 1.0f);
  for (std::size_t r = 0; r < kRows; ++r) {  // the same order of additions, so the same bits
    for (std::size_t i = 0; i < kChannels; ++i) {
      d_table[static_cast<std::size_t>(ids[r]) * kChannels + i] += dy[r * kChannels + i];
      d_positions[r % kSeq * kChannels + i] += dy[r * kChannels + i];
    }
  }
  for (const int size : kTeamSizes) {
    ThreadTeam team(size);
    std::vector<float> y(dy.size());
    std::vector<float> got_table(table.size(), 1.0f);
    std::vector<float> got_positions(positions.size(), 1.0f);
    embedding_forward(team, e, table.data(), positions.data(), y.data());
    embedding_backward(team, e, dy.data(), got_table.data(), got_positions.data());
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t i = 0; i < kChannels; ++i) {
        ASSERT_EQ(y[r * kChannels + i], table[static_cast<std::size_t>(ids[r]) * kChannels + i] +
                                            positions[r % kSeq * kChannels + i]);
      }
    }
    EXPECT_EQ(got_table, d_table);
    EXPECT_EQ(got_positions, d_positions);
  }
}

}  // namespace
}  // namespace isthmus::kernels::this_file
