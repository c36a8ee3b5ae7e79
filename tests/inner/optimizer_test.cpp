// SPDX-License-Identifier: Apache-2.0
// Optimizers against the plainest program in double, straight from torch.optim's documentation.
#include "inner/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kSteps = 20;
// Each fp32 update rounds a value of about 1 a few times, half of 2^-23 each.
constexpr double kRounding = kSteps * 4 * 0x1p-24;

ModelLayout small_layout() {
  return ModelLayout(model_shape(
      {.layers = 1, .d_model = 8, .heads = 2, .d_ff = 16, .vocab = 5, .context = 4}, 4));
}

/// torch.optim.AdamW and torch.optim.SGD for one element.
struct NaiveOptimizer {
  InnerConfig c;
  double m = 0, v = 0;
  int steps = 0;

  void update(double& p, double g, double lr, double weight_decay) {
    ++steps;
    if (c.optimizer == "adamw") {
      p -= lr * weight_decay * p;
      m = c.beta1 * m + (1 - c.beta1) * g;
      v = c.beta2 * v + (1 - c.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(c.beta1, steps));
      const double v_hat = v / (1 - std::pow(c.beta2, steps));
      p -= lr * m_hat / (std::sqrt(v_hat) + c.eps);
      return;
    }
    g += weight_decay * p;
    if (c.momentum != 0) {
      m = steps == 1 ? g : c.momentum * m + g;
      g = c.nesterov ? g + c.momentum * m : m;
    }
    p -= lr * g;
  }
};

void compare_with_naive(const InnerConfig& config) {
  const ModelLayout layout = small_layout();
  const auto n = static_cast<std::size_t>(layout.elements());
  const Rng rng{3, Stream::kTestData};
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(rng.normal(i));
  std::vector<double> expected(values.begin(), values.end());
  std::vector<NaiveOptimizer> naive(n, NaiveOptimizer{config});
  InnerOptimizer optimizer(config, layout);
  kernels::ThreadTeam team(2);
  std::vector<float> gradients(n);
  for (int step = 1; step <= kSteps; ++step) {
    const double lr = 0.01 / step;
    const double scale = step % 3 == 0 ? 0.25 : 1.0;
    for (std::size_t i = 0; i < n; ++i) {
      gradients[i] = static_cast<float>(rng.normal(i, static_cast<std::uint32_t>(step)));
    }
    optimizer.update(team, lr, scale, values, gradients);
    for (const TensorInfo& tensor : layout.tensors()) {
      const double decay = tensor.shape.size() >= 2 ? config.weight_decay : 0.0;
      for (std::int64_t e = tensor.elements.begin; e < tensor.elements.end; ++e) {
        const auto i = static_cast<std::size_t>(e);
        naive[i].update(expected[i], scale * static_cast<double>(gradients[i]), lr, decay);
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(values[i], expected[i], kRounding * std::max(1.0, std::abs(expected[i]))) << i;
  }
}

TEST(InnerOptimizer, AdamWIsTorchsAndDecaysMatricesOnly) {
  compare_with_naive({.optimizer = "adamw", .beta2 = 0.999, .weight_decay = 0.1});
  compare_with_naive({.optimizer = "adamw", .beta1 = 0.8, .eps = 1e-3, .weight_decay = 0});
}

TEST(InnerOptimizer, SgdIsTorchsWithAndWithoutMomentum) {
  compare_with_naive({.optimizer = "sgd", .weight_decay = 0});
  compare_with_naive({.optimizer = "sgd", .weight_decay = 0.1});
  compare_with_naive({.optimizer = "sgd", .weight_decay = 0.1, .momentum = 0.9});
  compare_with_naive({.optimizer = "sgd", .weight_decay = 0.1, .momentum = 0.9, .nesterov = true});
}

TEST(InnerOptimizer, KeepsAsManyMomentsAsItUses) {
  EXPECT_EQ(InnerOptimizer::moments({.optimizer = "adamw"}), 2);
  EXPECT_EQ(InnerOptimizer::moments({.optimizer = "sgd"}), 0);
  EXPECT_EQ(InnerOptimizer::moments({.optimizer = "sgd", .momentum = 0.9}), 1);
  EXPECT_THROW(static_cast<void>(InnerOptimizer::moments({.optimizer = "muon"})), ConfigError);
}

TEST(ClipCoefficient, IsTorchs) {
  EXPECT_EQ(clip_coefficient(1.0, 0.5), 1.0);
  EXPECT_EQ(clip_coefficient(1.0, 4.0), 1.0 / (4.0 + 1e-6));
  EXPECT_LT(clip_coefficient(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.0, 1e9), 1.0);
  EXPECT_EQ(clip_coefficient(0.1, 0.0), 1.0);
}

}  // namespace
}  // namespace isthmus
