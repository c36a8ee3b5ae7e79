// SPDX-License-Identifier: Apache-2.0
// Runs of a few steps whose weights, losses and norms are compared.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inner/mesh_test.h"

namespace isthmus {

inline constexpr int kSteps = 5;
inline constexpr double kNormRounding = 1e-12;  // sums of squares in double, cut into other parts

struct Trajectory {
  std::vector<double> losses, norms;
  std::vector<float> values;
};

inline void train(LanguageModelLoop& loop, int from, int to, Trajectory& into) {
  for (int t = from; t <= to; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t));
    into.losses.push_back(step.loss);
    into.norms.push_back(step.grad_norm);
  }
  into.values = all_values(loop);
}

inline Trajectory trained(const LanguageModelOptions& options, int steps = kSteps) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Trajectory all;
  train(loop, 1, steps, all);
  return all;
}

inline LanguageModelOptions with_zero(LanguageModelOptions options, int zero) {
  options.zero = zero;
  return options;
}

/// A clipped run: the norm must count each parameter once or the weights differ.
inline LanguageModelOptions clipped(const std::string& name) {
  LanguageModelOptions o = model_of(name);
  o.inner.clip = 0.5;
  o.inner.weight_decay = 0.1;
  return o;
}

inline void expect_same(const Trajectory& a, const Trajectory& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.values, b.values);
  ASSERT_EQ(a.norms.size(), b.norms.size());
  for (std::size_t t = 0; t < a.norms.size(); ++t) {
    EXPECT_GT(a.norms[t], 0.5) << "nothing is clipped in step " << t + 1;
    EXPECT_NEAR(a.norms[t], b.norms[t], kNormRounding * a.norms[t]) << "step " << t + 1;
  }
}

}  // namespace isthmus
