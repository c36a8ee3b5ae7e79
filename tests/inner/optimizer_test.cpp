// SPDX-License-Identifier: Apache-2.0
// Optimizers against the plainest program in double, straight from torch.optim's documentation.
#include "inner/model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"
#include "isthmus/errors.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"

namespace isthmus::this_file {
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

InnerConfig muon_config() {
  return {.optimizer = "muon", .weight_decay = 0.1, .momentum = 0.95, .nesterov = true};
}

ModelLayout layout_of(const std::string& arch, bool tied) {
  return ModelLayout(model_shape({.arch = arch,
                                  .layers = 2,
                                  .d_model = 16,
                                  .heads = 4,
                                  .d_ff = 40,
                                  .vocab = 11,
                                  .context = 6,
                                  .tied = tied},
                                 6));
}

std::vector<float> normal_values(const ModelLayout& layout, std::uint32_t which) {
  const Rng rng{5, Stream::kTestData};
  std::vector<float> x(static_cast<std::size_t>(layout.elements()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(rng.normal(i, which));
  return x;
}

/// Three updates from the same values and gradients whatever the optimizer.
std::vector<float> after_updates(const InnerConfig& config, const ModelLayout& layout, double lr) {
  std::vector<float> values = normal_values(layout, 0);
  InnerOptimizer optimizer(config, layout);
  kernels::ThreadTeam team(2);
  for (std::uint32_t step = 1; step <= 3; ++step) {
    optimizer.update(team, lr, 0.5, values, normal_values(layout, step));
  }
  return values;
}

std::vector<float> part_of(const std::vector<float>& x, const CanonicalRange& elements) {
  return {x.begin() + elements.begin, x.begin() + elements.end};
}

/// (rows, cols) to (cols, rows).
std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows) {
  const std::int64_t cols = static_cast<std::int64_t>(x.size()) / rows;
  std::vector<float> y;
  for (std::int64_t j = 0; j < cols; ++j) {
    for (std::int64_t i = 0; i < rows; ++i) y.push_back(x[static_cast<std::size_t>(i * cols + j)]);
  }
  return y;
}

TEST(InnerOptimizer, MuonLeavesAllButTheLayersMatricesToAdamW) {
  for (const char* arch : {"gpt2", "llama"}) {
    const ModelLayout layout = layout_of(arch, false);
    InnerConfig adamw = muon_config();
    adamw.optimizer = "adamw";
    const std::vector<float> muon_values = after_updates(muon_config(), layout, 0.01);
    const std::vector<float> adamw_values = after_updates(adamw, layout, 0.01);
    for (const TensorInfo& tensor : layout.tensors()) {
      const bool hidden = tensor.layer >= 0 && tensor.shape.size() == 2;
      EXPECT_EQ(part_of(muon_values, tensor.elements) == part_of(adamw_values, tensor.elements),
                !hidden)
          << tensor.name;
    }
  }
}

TEST(InnerOptimizer, MuonTreatsALinearLayerAlikeHoweverItIsStored) {
  // Orthogonalised in bfloat16: entries at most 1 err by a few 2^-9; see tests/kernels/muon_test.
  constexpr double kBf16Error = 0.07;
  constexpr double kRate = 0.01;
  for (const char* adjust_lr : {"original", "match_rms_adamw", "spectral_norm"}) {
    InnerConfig config = muon_config();
    config.adjust_lr = adjust_lr;
    for (const char* arch : {"gpt2", "llama"}) {
      const ModelLayout layout = layout_of(arch, true);
      const bool in_out = layout.shape().architecture == Architecture::kGpt2;
      const std::vector<float> after = after_updates(config, layout, kRate);
      kernels::ThreadTeam team(1);
      for (const TensorInfo& tensor : layout.tensors()) {
        if (tensor.layer < 0 || tensor.shape.size() != 2) continue;
        const std::int64_t out = tensor.shape[in_out ? 1 : 0];
        const std::int64_t in = tensor.shape[in_out ? 0 : 1];
        const auto as_linear = [&](const std::vector<float>& x) {
          const std::vector<float> part = part_of(x, tensor.elements);
          return in_out ? transposed(part, in) : part;
        };
        const double ratio = static_cast<double>(out) / static_cast<double>(in);
        const double scale = config.adjust_lr == "original" ? std::sqrt(std::max(1.0, ratio))
                             : config.adjust_lr == "spectral_norm"
                                 ? std::sqrt(ratio)
                                 : 0.2 * std::sqrt(static_cast<double>(std::max(out, in)));
        std::vector<float> p = as_linear(normal_values(layout, 0));
        std::vector<float> buffer(p.size());
        for (std::uint32_t step = 1; step <= 3; ++step) {
          kernels::muon_step(team,
                             {.lr = kRate,
                              .momentum = config.momentum,
                              .nesterov = config.nesterov,
                              .weight_decay = config.weight_decay,
                              .update_scale = scale,
                              .gradient_scale = 0.5},
                             out, in, p.data(), as_linear(normal_values(layout, step)).data(),
                             buffer.data());
        }
        const std::vector<float> ours = as_linear(after);
        for (std::size_t i = 0; i < p.size(); ++i) {
          ASSERT_NEAR(ours[i], p[i], 3 * kRate * scale * kBf16Error) << tensor.name;
        }
      }
    }
  }
}

TEST(InnerOptimizer, KeepsAsManyMomentsAsItUses) {
  const ModelLayout layout = layout_of("gpt2", true);
  const std::int64_t all = layout.elements();
  const std::int64_t matrices = std::int64_t{2} * (4 * 16 * 16 + 2 * 16 * 40);
  EXPECT_EQ(InnerOptimizer::moment_values({.optimizer = "adamw"}, layout), 2 * all);
  EXPECT_EQ(InnerOptimizer::moment_values({.optimizer = "sgd"}, layout), 0);
  EXPECT_EQ(InnerOptimizer::moment_values({.optimizer = "sgd", .momentum = 0.9}, layout), all);
  EXPECT_EQ(InnerOptimizer::moment_values(muon_config(), layout), 2 * all - matrices);
}

TEST(InnerOptimizer, RefusesWhatItDoesNotKnow) {
  const ModelLayout layout = layout_of("gpt2", true);
  EXPECT_THROW(InnerOptimizer({.optimizer = "lion"}, layout), ConfigError);
  EXPECT_THROW(InnerOptimizer({.optimizer = "muon", .adjust_lr = "spectral"}, layout), ConfigError);
}

TEST(ClipCoefficient, IsTorchs) {
  EXPECT_EQ(kernels::clip_coefficient(1.0, 0.5), 1.0);
  EXPECT_EQ(kernels::clip_coefficient(1.0, 4.0), 1.0 / (4.0 + 1e-6));
  EXPECT_LT(kernels::clip_coefficient(1.0, 1.0), 1.0);
  EXPECT_EQ(kernels::clip_coefficient(0.0, 1e9), 1.0);
  EXPECT_EQ(kernels::clip_coefficient(0.1, 0.0), 1.0);
}

}  // namespace
}  // namespace isthmus::this_file
