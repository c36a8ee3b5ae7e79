// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/device_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "inner/cuda/cuda_loop.h"
#include "inner/model/model_shape.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kSteps = 2;  // the second one's loss is that of updated weights
constexpr std::int64_t kLength = 40, kVocab = 300;
// Far above rounding, which is about 1e-6 of a loss and, in bf16, about 1e-3; far below the error
// of a wrong kernel.
constexpr double kMostFp32 = 1e-3, kMostBf16 = 0.03;
// For the gradient of a tensor, relative to its length or, if the tensor has next to none, to this
// share of the whole gradient's: the gradient of attention's key biases is rounding alone.
constexpr double kMostGradientFp32 = 1e-3, kMostGradientBf16 = 0.1, kLeastShare = 0.01;
// For the changes that the steps made. AdamW moves an element whose gradient is rounding alone as
// far as any other, in either direction; weights that stay, move twice as far or the other way
// differ by 1 and more.
constexpr double kMostSgdFp32 = 0.01, kMostSgdBf16 = 0.1, kMostAdamFp32 = 0.2, kMostAdamBf16 = 0.5;
// Muon scales the smallest part of a gradient up to the rest, rounding with it, and rounds to
// bfloat16 in either precision: 0.006 to 0.023 on the emulated device.
constexpr double kMostMuonFp32 = 0.1, kMostMuonBf16 = 0.3;

LanguageModelOptions tiny_like(const LanguageModelOptions& run) {
  const ModelShape shape = model_shape(run.model, run.context);
  LanguageModelOptions tiny;
  tiny.model = run.model;
  tiny.model.preset.clear();
  tiny.model.init.clear();
  tiny.model.layers = 1;
  tiny.model.family.layers.resize(std::min<std::size_t>(1, tiny.model.family.layers.size()));
  tiny.model.heads = 2;
  tiny.model.kv_heads = shape.kv_heads < shape.heads ? 1 : 2;
  tiny.model.head_dim = shape.head_dim;
  tiny.model.d_model = 2 * shape.head_dim;
  tiny.model.d_ff = 0;
  tiny.model.vocab = kVocab;
  tiny.model.context = 0;
  if (!run.forward_only) tiny.inner = run.inner;
  // At a rate whose changes exceed the rounding of the weights.
  tiny.inner.lr = tiny.inner.optimizer == "sgd" ? 0.1 : 1e-3;
  tiny.inner.schedule = InnerConfig().schedule;
  tiny.inner.warmup = {};
  tiny.inner.decay = {};
  tiny.inner.rewarm.clear();
  tiny.context = kLength;
  tiny.total_steps = kSteps;
  tiny.bf16 = run.bf16;
  tiny.attention = run.attention;
  return tiny;
}

using Tensors = std::vector<std::vector<float>>;

struct Results {
  Tensors gradients;  // of the first weights
  double loss[kSteps], norm[kSteps];
  Tensors changes;  // of the weights, by all steps
};

Tensors values_of(InnerLoop& loop) {
  const std::span<const Parameter> parameters = loop.parameters();
  loop.read_values({0, parameters.back().elements.end});
  Tensors values;
  for (const Parameter& each : parameters)
    values.emplace_back(each.values.begin(), each.values.end());
  return values;
}

Results train(InnerLoop& loop) {
  Results results{};
  const Tensors before = values_of(loop);
  (void)loop.gradients(StepIndex(1), {});
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::span<const float> gradient = loop.gradient(i);
    results.gradients.emplace_back(gradient.begin(), gradient.end());
  }
  for (int t = 0; t < kSteps; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t + 2));
    results.loss[t] = step.loss;
    results.norm[t] = step.grad_norm;
  }
  results.changes = values_of(loop);
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (std::size_t k = 0; k < before[i].size(); ++k) results.changes[i][k] -= before[i][k];
  }
  return results;
}

double squares(std::span<const float> a) {
  double sum = 0;
  for (const float value : a) sum += double{value} * double{value};
  return sum;
}
double squares_apart(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = double{a[i]} - double{b[i]};
    sum += apart * apart;
  }
  return sum;
}

// Each: empty where `got` is near to `expected`. Comparisons are written so that NaN differs.
std::string compare_steps(const Results& got, const Results& expected, double most) {
  for (int t = 0; t < kSteps; ++t) {
    const auto near = [&](double a, double b) { return std::abs(a - b) <= most * std::abs(b); };
    if (near(got.loss[t], expected.loss[t]) && near(got.norm[t], expected.norm[t])) continue;
    return fmt::format(
        "step {} of a tiny model has loss {:.6g} and gradient norm {:.6g}, on the CPU {:.6g} and "
        "{:.6g}",
        t + 1, got.loss[t], got.norm[t], expected.loss[t], expected.norm[t]);
  }
  return "";
}

std::string compare_gradients(const Results& got, const Results& expected,
                              std::span<const Parameter> parameters, double most) {
  double whole = 0;
  for (const std::vector<float>& each : expected.gradients) whole += squares(each);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double length =
        std::max(std::sqrt(squares(expected.gradients[i])), kLeastShare * std::sqrt(whole));
    const double apart = std::sqrt(squares_apart(got.gradients[i], expected.gradients[i])) / length;
    if (apart <= most) continue;
    return fmt::format(
        "the gradient of {} of a tiny model is {:.3g} of its length from that on the CPU, of which "
        "rounding is at most {}",
        parameters[i].name, apart, most);
  }
  return "";
}

/// The changes that the steps made in some of the tensors.
struct Changes {
  const char* where;
  double most;
  double whole = 0, differing = 0;
};

std::string compare_changes(const Results& got, const Results& expected,
                            std::span<const Parameter> parameters,
                            const LanguageModelOptions& tiny) {
  const bool sgd = tiny.inner.optimizer == "sgd", muon = tiny.inner.optimizer == "muon";
  Changes rest{"weights", tiny.bf16 ? (sgd ? kMostSgdBf16 : kMostAdamBf16)
                                    : (sgd ? kMostSgdFp32 : kMostAdamFp32)};
  // Apart, since AdamW changes the others more than Muon does these.
  Changes matrices{"layers' matrices", tiny.bf16 ? kMostMuonBf16 : kMostMuonFp32};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const bool matrix = parameter.layer != kNoLayer && parameter.shape.size() == 2;
    Changes& changes = muon && matrix ? matrices : rest;
    changes.whole += squares(expected.changes[i]);
    changes.differing += squares_apart(got.changes[i], expected.changes[i]);
  }
  for (const Changes* const each : {&rest, &matrices}) {
    if (each == &matrices && !muon) continue;
    const double apart = std::sqrt(each->differing / each->whole);
    if (apart <= each->most) continue;
    return fmt::format(
        "what {} steps change in the {} of a tiny model is {:.3g} of its length from what they "
        "change on the CPU, of which rounding is at most {}",
        kSteps, each->where, apart, each->most);
  }
  return "";
}

std::string compare(const Results& got, const Results& expected,
                    std::span<const Parameter> parameters, const LanguageModelOptions& tiny) {
  std::string why = compare_gradients(got, expected, parameters,
                                      tiny.bf16 ? kMostGradientBf16 : kMostGradientFp32);
  if (why.empty()) why = compare_steps(got, expected, tiny.bf16 ? kMostBf16 : kMostFp32);
  return why.empty() ? compare_changes(got, expected, parameters, tiny) : why;
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
  const char* side = "on the CPU";  // that the device is compared with
  try {
    LanguageModelLoop cpu(tiny, batches);
    const Results expected = train(cpu);
    side = "there";
    const Results got = train(*make_cuda_loop(tiny, batches));
    return compare(got, expected, cpu.parameters(), tiny);
  } catch (const Error& error) {
    return fmt::format("a step of a tiny model fails {}: {}", side, error.what());
  }
}

}  // namespace isthmus
