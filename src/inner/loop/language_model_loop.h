// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of one site as an InnerLoop: a GPT-2 or Llama model on one rank or a mesh of
// ranks, its batches, gradient accumulation, clipping and optimizer. Owns parameters, gradients,
// moments, activations and its threads. One thread drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/state/state_memory.h"
#include "inner/loop/device_attention.h"
#include "inner/loop/model_cost.h"
#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh_model.h"
#include "inner/mesh/sharded_optimizer.h"
#include "inner/model/model.h"
#include "inner/model/model_layout.h"
#include "inner/model/optimizer.h"
#include "inner/model/schedule.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "kernels/thread_team.h"

namespace isthmus {

/// This worker's samples of inner step t >= 1; valid until the next call.
using BatchProvider = std::function<TokenBatch(StepIndex t)>;

/// Saves and loads the batch provider's state with the optimizer's; both empty: no state.
struct BatchState {
  std::function<void(StateWriter&)> save;
  std::function<void(StateReader&)> load;
};

struct LanguageModelOptions {
  ModelConfig model;
  InnerConfig inner;
  std::int64_t context = 128;      // T, longest sequence of a batch
  std::int64_t sequences = 1;      // samples of this worker in one inner step
  std::int64_t micro_batches = 1;  // parts into which a step's samples are split; divides sequences
  std::int64_t total_steps = 1;    // of the run, for the learning rate schedule
  int threads = 1;
  std::vector<int> cores = {};  // one core for each thread, which is pinned to it; empty: any
  bool bf16 = false;            // matrix products in bfloat16, all else in float
  DeviceAttention attention = DeviceAttention::kOwn;  // on a device
  bool forward_only =
      false;  // true: no gradients, moments or kept activations; only loss and train_loss work
  Recompute recompute = Recompute::kNone;  // same bits, less memory, more time
  std::uint64_t seed = 0;                  // seed of the initial weights
  // Ranks inside the site; micro_batches then counts those of each data-parallel rank.
  MeshShape mesh = {};
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
  CodecByDimension rank_codecs = {};
  /// The processes that are the mesh's ranks, each with `threads` threads; this process is the
  /// first; borrowed. Null: the ranks are threads of this process and share `threads`.
  RankProcesses* processes = nullptr;
  int zero = 0;  // ZeRO stage: state sharded over the data-parallel ranks; no effect without such
                 // ranks
  bool whole_gradients = false;  // true: `gradients` will be called, so memory estimates include it
  RankPatience patience = {};    // timeouts of ranks that are threads
  BatchState batch_state = {};   // saved and loaded with the loop
  std::int64_t bucket_values = kGradientBucketValues;  // largest number of gradients that ranks sum
                                                       // at a time
};

/// RETURNS: `options`. THROWS: ConfigError when sizes do not fit together.
[[nodiscard]] const LanguageModelOptions& checked_options(const LanguageModelOptions& options);

/// Bytes that a loop with these options holds (inner/loop/model_cost.h).
[[nodiscard]] MemoryEstimate loop_memory(const ModelLayout& layout,
                                         const LanguageModelOptions& options);

/// The mesh of such a loop, for its ranks that are separate processes (serve_mesh).
[[nodiscard]] MeshOptions mesh_options(const LanguageModelOptions& options);

/// Makes a mesh whose ranks have separate weights, gradients and moments and update them, as with
/// ZeRO. `weights` (elements,) are the mesh's canonical weights. The mesh may borrow both
/// arguments.
using MeshMaker =
    std::function<std::unique_ptr<MeshModel>(const ModelLayout& layout, float* weights)>;

class LanguageModelLoop final : public InnerLoop {
 public:
  /// THROWS: ConfigError when sizes do not fit together, SystemError when memory does not suffice.
  LanguageModelLoop(const LanguageModelOptions& options, BatchProvider batches);
  /// A loop over ranks made by `make_mesh`, for example on devices. THROWS: as above, and as
  /// `make_mesh`.
  LanguageModelLoop(const LanguageModelOptions& options, BatchProvider batches,
                    const MeshMaker& make_mesh);

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  /// If ranks update separate weights (processes with zero, devices), the ranks have the master
  /// values.
  void read_values(CanonicalRange elements) override;
  void wrote_values(CanonicalRange elements) override;
  /// InnerStep::loss is the cross-entropy without the z-loss. THROWS: RunError naming the step when
  /// loss or gradient norm is not finite; parameters and moments are then those before the step.
  InnerStep train_step(StepIndex t) override;
  /// DETERMINISM: micro-batches are added in order; no bit depends on the number of threads.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  double apply_gradients(StepIndex t) override;
  /// Any number of sequences of at most `context` tokens; they are processed in parts.
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  /// The share consists of consecutive whole samples. The loss is the training objective, z-loss
  /// included.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override;
  [[nodiscard]] AdamSettings adam_settings() const override;
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  [[nodiscard]] const ModelLayout& layout() const { return layout_; }
  /// Bytes of weights, gradients, moments and activations that this loop holds.
  [[nodiscard]] std::size_t held_bytes() const;
  /// Runs a service on all ranks (MeshModel::call_ranks). REQUIRES: options.processes.
  void call_ranks(const RankService& own_part) { mesh_->call_ranks(own_part); }
  /// Sets a callback for the start of each part of a training pass, for timing; empty: none.
  void watch_parts(std::function<void(PassPart)> on_part) { on_part_ = std::move(on_part); }

 private:
  [[nodiscard]] std::span<float> values() const;
  [[nodiscard]] std::span<float> all_gradients() const;
  void clear_gradients();
  [[nodiscard]] double squared_norm(std::size_t parameter);
  /// Updates with the current gradients; `squares_` holds the squared norm of each parameter's
  /// gradient. RETURNS: the norm of all gradients.
  double update(StepIndex t);
  [[nodiscard]] LossSum gradient_pass(const TokenBatch& batch, double scale,
                                      const GradientReady& on_ready);
  /// slices: the ranks of a mesh keep the gradients' sums.
  [[nodiscard]] InnerStep run_pass(StepIndex t, const GradientReady& on_ready, bool slices);
  /// Allocates whole gradients, if ranks otherwise keep slices.
  void need_gradients();
  [[nodiscard]] LossSum mesh_gradient_pass(const TokenBatch& batch, double scale,
                                           const GradientReady& on_ready, bool slices);
  [[nodiscard]] LossSum sum_losses(const TokenBatch& batch, const ParameterSource& source);
  /// All values of `source` in canonical order, for ranks that read them concurrently.
  [[nodiscard]] const float* flat_values(const ParameterSource& source);

  LanguageModelOptions options_;
  ModelLayout layout_;
  BatchProvider batches_;
  LearningRateSchedule schedule_;
  kernels::ThreadTeam team_;
  StateArray values_;
  StateArray gradients_;                       // with sharded_: allocated by the first `gradients`
  std::optional<InnerOptimizer> optimizer_;    // absent when forward only and with sharded_
  std::optional<LanguageModel<float>> model_;  // if there is one rank
  std::optional<EmbeddingRows<float>> embedding_rows_;  // of the model's tied table
  std::unique_ptr<MeshModel> mesh_;                     // if there are several ranks
  std::optional<ShardedOptimizer> sharded_;             // in place of optimizer_: each rank's own
                                                        // optimizer
  bool ranks_have_weights_;                             // true: ranks update separate weights
  StateArray source_values_;                            // values of a ParameterSource, for a mesh
  std::vector<Parameter> parameters_;
  std::vector<double> squares_;  // of each parameter's gradient
  std::function<void(PassPart)> on_part_;
};

}  // namespace isthmus
