// SPDX-License-Identifier: Apache-2.0
// Tiny models for training on the device, each beside a LanguageModelLoop on the CPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device_test.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/inner_test.h"
#include "inner/loop/language_model_loop.h"

namespace isthmus {

inline constexpr std::int64_t kVocab = 67;  // no multiple of 8: logits are padded
inline constexpr std::int64_t kLength = 8;
inline constexpr std::int64_t kSequences = 2;

/// gpt2, llama, or llama+ with all that a Llama can have besides: grouped queries, normed heads of
/// another width than the stream, a head of its own, z-loss; or family, with what other families
/// have on devices: scaled positions, logits of another scale.
[[nodiscard]] inline LanguageModelOptions tiny_options(const std::string& name) {
  LanguageModelOptions o;
  o.model = {.arch = name == "gpt2" ? "gpt2" : "llama",
             .layers = 2,
             .d_model = 32,
             .heads = 2,
             .vocab = kVocab,
             .context = kLength + 2};
  if (name == "llama+") {
    o.model.heads = 4;
    o.model.kv_heads = 2;
    o.model.head_dim = 16;
    o.model.d_ff = 40;
    o.model.tied = false;
    o.model.qk_norm = true;
    o.model.z_loss = 1e-2;
  }
  if (name == "family") {
    o.model.heads = 4;
    o.model.kv_heads = 2;
    o.model.head_dim = 16;
    o.model.d_ff = 40;
    ModelFamily& family = o.model.family;
    family.name = "family";
    family.rope = {.type = RopeType::kLinear, .factor = 3, .attention_factor = 1.1};
    family.query_scalar = 20;
  }
  o.inner.lr = 2e-3;
  o.context = kLength;
  o.sequences = kSequences;
  o.total_steps = 50;
  o.seed = 5;
  return o;
}

/// Batches of which some targets do not count: as many in each step, or fewer in every third.
class SparseBatches {
 public:
  explicit SparseBatches(bool varies, std::int64_t length = kLength)
      : varies_(varies), random_(kVocab, kSequences, length) {}
  [[nodiscard]] BatchProvider provider() {
    return [this](StepIndex t) {
      TokenBatch batch = random_.at(t);
      targets_.assign(batch.targets.begin(), batch.targets.end());
      targets_[3] = targets_[7] = -1;
      if (varies_ && t.value() % 3 == 0) targets_[5] = -1;
      batch.targets = targets_;
      return batch;
    };
  }

 private:
  bool varies_;
  RandomBatches random_;
  std::vector<std::int32_t> targets_;
};

/// Norm of the difference over the norm of b.
[[nodiscard]] inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

[[nodiscard]] inline std::vector<float> all_gradients(InnerLoop& loop) {
  std::vector<float> all;
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const std::span<const float> g = loop.gradient(i);
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

[[nodiscard]] inline CanonicalRange all_elements(const InnerLoop& loop) {
  return {0, loop.parameters().back().elements.end};
}

/// The loop's values as they are now.
[[nodiscard]] inline std::vector<float> values_now(InnerLoop& loop) {
  loop.read_values(all_elements(loop));
  return all_values(loop);
}

/// Puts `values` into the loop.
inline void set_values(InnerLoop& loop, const std::vector<float>& values) {
  std::size_t at = 0;
  for (const Parameter& p : loop.parameters()) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), p.values.size(),
                p.values.begin());
    at += p.values.size();
  }
  loop.wrote_values(all_elements(loop));
}

struct Trajectory {
  std::vector<double> losses, norms;
  std::vector<float> values;
  bool operator==(const Trajectory&) const = default;
};
[[nodiscard]] inline Trajectory train(InnerLoop& loop, int first, int last) {
  Trajectory out;
  for (int t = first; t <= last; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t));
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
  }
  out.values = values_now(loop);
  return out;
}

class CudaLoopTest : public cuda::DeviceTest {
 protected:
  RandomBatches cpu_batches_{kVocab, kSequences, kLength};
  RandomBatches batches_{kVocab, kSequences, kLength};
};

class CudaModelsTest : public CudaLoopTest, public testing::WithParamInterface<const char*> {
 protected:
  LanguageModelOptions options_ = tiny_options(GetParam());
};

#define ISTHMUS_FOR_EACH_MODEL(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Models, suite, testing::Values("gpt2", "llama", "llama+", "family"), \
                           [](const auto& param) {                                              \
                             const std::string name = param.param;                              \
                             return name == "llama+" ? "llama_grouped" : name;                  \
                           })

}  // namespace isthmus
