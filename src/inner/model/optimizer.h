// SPDX-License-Identifier: Apache-2.0
// Inner optimizers over the flat buffers of a model: AdamW (Loshchilov & Hutter arXiv:1711.05101),
// SGD with momentum, and Muon (kernels/muon.h) on the layers' matrices with AdamW on all else; each
// step by step as torch.optim computes it, with decoupled (AdamW, Muon) or coupled (SGD) weight
// decay on tensors of two or more dimensions only.
// Owns moments and counters; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/state/state_memory.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/state.h"
#include "kernels/thread_team.h"

namespace isthmus {

/// True if the state comes from another kind of trainer (the donor's, in a run with different
/// kinds): it holds nothing for this optimizer, which then starts from zero. Logs this.
[[nodiscard]] bool is_of_another_trainer(StateReader& reader);

// The state's format in checkpoints, for any place of the moments: first the number of updates,
// then those of the two moments that the optimizer has.
void save_updates(StateWriter& writer, const InnerConfig& config, std::int64_t updates);
void save_moment(StateWriter& writer, int index, std::span<const float> values);
/// RETURNS: the number of updates. THROWS: RunError naming the optimizer of another configuration.
[[nodiscard]] std::int64_t load_updates(StateReader& reader, const InnerConfig& config);
void load_moment(StateReader& reader, int index, std::span<float> values);

/// A tensor that Muon updates.
struct MuonMatrix {
  std::int64_t rows = 0, cols = 0;  // in storage order
  double update_scale = 1;          // factor that adjust_lr gives
};
/// RETURNS: absent for a tensor that another rule updates. THROWS: ConfigError naming an unknown
/// adjust_lr.
[[nodiscard]] std::optional<MuonMatrix> muon_matrix(const InnerConfig& config,
                                                    const ModelLayout& layout,
                                                    const TensorInfo& tensor);

/// AdamW's settings, for outer methods that use its moments. THROWS: ConfigError naming another
/// optimizer.
void check_adamw(const InnerConfig& config);

class InnerOptimizer {
 public:
  /// An optimizer of all elements of `layout`. THROWS: ConfigError naming an unknown optimizer or
  /// adjust_lr.
  InnerOptimizer(const InnerConfig& config, const ModelLayout& layout);
  /// An optimizer of a contiguous range of elements, cut at any element. REQUIRES: not Muon, which
  /// needs whole matrices.
  InnerOptimizer(const InnerConfig& config, const ModelLayout& layout, CanonicalRange elements);

  /// One update of `values` from gradient_scale * `gradients`, both (its elements,).
  void update(kernels::ThreadTeam& team, double lr, double gradient_scale, std::span<float> values,
              std::span<const float> gradients);

  /// Resets the moments; sets the number of updates to `updates`.
  void reset(std::int64_t updates = 0);
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  /// AdamW's moments of `elements`. THROWS: ConfigError for any other optimizer.
  [[nodiscard]] AdamMoments adam_moments(CanonicalRange elements) const;
  /// First or second moments; empty when this optimizer has none.
  [[nodiscard]] std::span<float> moment(int index) const;
  [[nodiscard]] std::size_t held_bytes() const { return moments_.size() * sizeof(float); }
  /// Number of values that such an optimizer keeps between steps. Per parameter: AdamW two; SGD one
  /// with momentum, else none; Muon one in its matrices and two elsewhere.
  [[nodiscard]] static std::int64_t moment_values(const InnerConfig& config,
                                                  const ModelLayout& layout);
  /// The same for `elements` contiguous elements. REQUIRES: not Muon.
  [[nodiscard]] static std::int64_t moment_values(const InnerConfig& config, std::int64_t elements);

 private:
  /// A matrix of Muon's, or a part of contiguous tensors with the same weight decay.
  struct Run {
    CanonicalRange elements;
    double weight_decay = 0;
    std::int64_t second = 0;  // index of its first value among the stored second moments
    std::int64_t rows = 0;    // of Muon's matrix in storage order; 0: not such a matrix
    double update_scale = 1;
  };
  /// Runs are short enough that a few of them fit in memory if all state is in files.
  void cut_runs();
  void update_run(kernels::ThreadTeam& team, const Run& run, double lr, double gradient_scale,
                  float* p, const float* g);

  InnerConfig config_;
  CanonicalRange elements_;
  std::vector<Run> runs_;
  std::int64_t updates_ = 0;
  std::int64_t first_values_, second_values_;
  StateArray moments_;
};

}  // namespace isthmus
