// SPDX-License-Identifier: Apache-2.0
#include "inner/device_check.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "inner/cuda_loop.h"
#include "inner/model_shape.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kSteps = 2;  // the second one's loss is that of updated weights
constexpr std::int64_t kLength = 40, kVocab = 300;
// Far above rounding, which is some 1e-6 and, of bf16, some 1e-3 of a loss; far below what a kernel
// that is wrong does to it.
constexpr double kMostFp32 = 1e-3, kMostBf16 = 0.03;

LanguageModelOptions tiny_like(const LanguageModelOptions& run) {
  const ModelShape shape = model_shape(run.model, run.context);
  LanguageModelOptions tiny;
  tiny.model = run.model;
  tiny.model.preset.clear();
  tiny.model.init.clear();
  tiny.model.layers = 1;
  tiny.model.heads = 2;
  tiny.model.kv_heads = shape.kv_heads < shape.heads ? 1 : 2;
  tiny.model.head_dim = shape.head_dim;
  tiny.model.d_model = 2 * shape.head_dim;
  tiny.model.d_ff = 0;
  tiny.model.vocab = kVocab;
  tiny.model.context = 0;
  if (!run.forward_only) tiny.inner.optimizer = run.inner.optimizer;
  tiny.context = kLength;
  tiny.total_steps = kSteps;
  tiny.bf16 = run.bf16;
  return tiny;
}

struct Results {
  double loss[kSteps], norm[kSteps];
};

Results train(InnerLoop& loop) {
  Results results{};
  for (int t = 0; t < kSteps; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t + 1));
    results.loss[t] = step.loss;
    results.norm[t] = step.grad_norm;
  }
  return results;
}

}  // namespace

std::string device_self_check(const LanguageModelOptions& run) {
  const LanguageModelOptions tiny = tiny_like(run);
  std::vector<std::int32_t> inputs, targets;
  const auto batches = [&](StepIndex t) {
    inputs.clear();
    targets.clear();
    for (std::int64_t i = 0; i < kLength; ++i) {
      inputs.push_back(static_cast<std::int32_t>((31 * i + 7 * t.value()) % kVocab));
      targets.push_back(static_cast<std::int32_t>((17 * i + 5 * t.value()) % kVocab));
    }
    return TokenBatch{inputs, targets, 1, kLength};
  };
  LanguageModelLoop cpu(tiny, batches);
  const Results expected = train(cpu);
  try {
    const Results got = train(*make_cuda_loop(tiny, batches));
    const double most = tiny.bf16 ? kMostBf16 : kMostFp32;
    for (int t = 0; t < kSteps; ++t) {
      // Written so that NaN differs.
      const auto near = [&](double a, double b) { return std::abs(a - b) <= most * std::abs(b); };
      if (near(got.loss[t], expected.loss[t]) && near(got.norm[t], expected.norm[t])) continue;
      return fmt::format(
          "step {} of a tiny model has loss {:.6g} and gradient norm {:.6g}, on the CPU {:.6g} and "
          "{:.6g}",
          t + 1, got.loss[t], got.norm[t], expected.loss[t], expected.norm[t]);
    }
    return "";
  } catch (const Error& error) {
    return fmt::format("a step of a tiny model fails: {}", error.what());
  }
}

}  // namespace isthmus
