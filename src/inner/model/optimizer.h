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

/// Whether the state is one of another trainer, a donor's in a run of unlike ones: it holds nothing
/// for this optimizer, which then begins anew. Logs so.
[[nodiscard]] bool is_of_another_trainer(StateReader& reader);

// The state as checkpoints hold it, wherever the moments are: first the updates, then of the two
// moments those that the optimizer has.
void save_updates(StateWriter& writer, const InnerConfig& config, std::int64_t updates);
void save_moment(StateWriter& writer, int index, std::span<const float> values);
/// RETURNS: the updates. THROWS: RunError naming the optimizer of another configuration.
[[nodiscard]] std::int64_t load_updates(StateReader& reader, const InnerConfig& config);
void load_moment(StateReader& reader, int index, std::span<float> values);

/// A tensor that Muon updates.
struct MuonMatrix {
  std::int64_t rows = 0, cols = 0;  // as it is stored
  double update_scale = 1;          // by adjust_lr
};
/// RETURNS: nothing of a tensor that another rule updates. THROWS: ConfigError naming an unknown
/// adjust_lr.
[[nodiscard]] std::optional<MuonMatrix> muon_matrix(const InnerConfig& config,
                                                    const ModelLayout& layout,
                                                    const TensorInfo& tensor);

/// For outer methods that use Adam's moments. THROWS: ConfigError naming another optimizer.
void check_adamw(const InnerConfig& config);

class InnerOptimizer {
 public:
  /// Of all elements of `layout`. THROWS: ConfigError naming an unknown optimizer or adjust_lr.
  InnerOptimizer(const InnerConfig& config, const ModelLayout& layout);
  /// Of some neighbouring elements, cut anywhere. REQUIRES: not Muon, which takes whole matrices.
  InnerOptimizer(const InnerConfig& config, const ModelLayout& layout, CanonicalRange elements);

  /// One update of `values` from gradient_scale * `gradients`, both (its elements,).
  void update(kernels::ThreadTeam& team, double lr, double gradient_scale, std::span<float> values,
              std::span<const float> gradients);

  /// Forgets moments and the number of updates, which becomes `updates`.
  void reset(std::int64_t updates = 0);
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  /// AdamW's moments of `elements`. THROWS: ConfigError when this is another optimizer.
  [[nodiscard]] AdamMoments adam_moments(CanonicalRange elements) const;
  /// First or second moments; empty when this optimizer has none.
  [[nodiscard]] std::span<float> moment(int index) const;
  [[nodiscard]] std::size_t held_bytes() const { return moments_.size() * sizeof(float); }
  /// Values that such an optimizer keeps between steps. Of each parameter AdamW has two, SGD one
  /// with momentum and none without, Muon one in its matrices and two elsewhere.
  [[nodiscard]] static std::int64_t moment_values(const InnerConfig& config,
                                                  const ModelLayout& layout);
  /// The same of `elements` neighbours. REQUIRES: not Muon.
  [[nodiscard]] static std::int64_t moment_values(const InnerConfig& config, std::int64_t elements);

 private:
  /// A matrix of Muon's, or part of neighbouring tensors with the same weight decay.
  struct Run {
    CanonicalRange elements;
    double weight_decay = 0;
    std::int64_t second = 0;  // where its second moments begin, of those kept
    std::int64_t rows = 0;    // of Muon's matrix as it is stored; 0: not such a matrix
    double update_scale = 1;
  };
  /// Runs are short enough for a few of them to be in memory where all lies in files.
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
