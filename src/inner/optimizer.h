// SPDX-License-Identifier: Apache-2.0
// Inner optimizers over the flat buffers of a model: AdamW (Loshchilov & Hutter arXiv:1711.05101)
// and SGD with momentum, both step by step as torch.optim computes them, with decoupled (AdamW) or
// coupled (SGD) weight decay on tensors of two or more dimensions only.
// Owns moments and counters; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inner/model_layout.h"
#include "isthmus/config.h"
#include "isthmus/state.h"
#include "kernels/aligned_buffer.h"
#include "kernels/thread_team.h"

namespace isthmus {

/// min(1, clip / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it; 1 when clip is 0 (off).
[[nodiscard]] double clip_coefficient(double clip, double norm);

class InnerOptimizer {
 public:
  /// THROWS: ConfigError naming an unknown optimizer.
  InnerOptimizer(const InnerConfig& config, const ModelLayout& layout);

  /// One update of `values` from gradient_scale * `gradients`, both (layout.elements(),).
  void update(kernels::ThreadTeam& team, double lr, double gradient_scale, std::span<float> values,
              std::span<const float> gradients);

  /// Forgets moments and the number of updates.
  void reset();
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  /// Arrays of one value a parameter that such an optimizer keeps: 2, 1 or 0.
  [[nodiscard]] static int moments(const InnerConfig& config);

 private:
  struct Run {  // neighbouring tensors with the same weight decay
    CanonicalRange elements;
    double weight_decay = 0;
  };
  [[nodiscard]] std::span<float> moment(int index) const;

  InnerConfig config_;
  std::int64_t elements_;
  std::vector<Run> runs_;
  std::int64_t updates_ = 0;
  kernels::AlignedBuffer moments_;
};

}  // namespace isthmus
