// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of one site on a CUDA device: the counterpart of LanguageModelLoop on the
// CPU, with weights, gradients, moments and activations in device memory.
//
// The master weights are on the device. `parameters()[i].values` are mirrors in pinned host memory:
// valid after `read_values` of their elements, and copied to the device after `wrote_values`.
// Through cuda::ResidentValues the weights are read and written on the device. Gradients are copied
// to the host in `gradients`, unless they are to stay on the device, and back only in
// `apply_gradients`. Adam's moments are copied like the weights once adam_moments was called
// (cuda_moments.h). Through cuda::ResidentAdam gradients and moments are read and written on the
// device. After its first run a step is two CUDA graphs, the pass and the update, without host
// synchronisation; loss and norm are copied back at the end, while the next step's batch is already
// being copied to the device.
//
// As a rank of a mesh (cuda_mesh.h) the pass is split into graphs at the points at which buckets of
// gradients are final. A bucket is summed over the ranks while the pass continues. The update is
// queued once all sums are complete.
//
// Threads: one thread drives the loop, on the device that `cuda::use_device` has selected for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inner/cuda/cuda_batches.h"
#include "inner/cuda/cuda_model.h"
#include "inner/cuda/cuda_moments.h"
#include "inner/cuda/cuda_optimizer.h"
#include "inner/cuda/cuda_peers.h"
#include "inner/cuda/repeated_work.h"
#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_cost.h"
#include "inner/model/model_layout.h"
#include "inner/model/schedule.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_adam.h"
#include "kernels/cuda/staging.h"

namespace isthmus {

/// A loop on one device, without a mesh. THROWS: ConfigError for unsupported options
/// (check_cuda_options, some head dimensions) and sizes that do not fit together; SystemError
/// without a device, and when its memory does not suffice: the text gives the bytes by part and the
/// setting that lowers them.
[[nodiscard]] std::unique_ptr<InnerLoop> make_cuda_loop(const LanguageModelOptions& options,
                                                        BatchProvider batches);

/// Settings whose defaults suit every run; tests change them.
struct CudaLoopSettings {
  bool graphs = true;
  std::int64_t logits_bytes = CudaModelOptions().logits_bytes;
  /// Smallest number of values in a bucket whose gradients the ranks sum together, except the last:
  /// 16 MiB of fp32, so that synchronisation is short relative to the transfer.
  std::int64_t bucket_values = std::int64_t{1} << 22;
};

/// Device memory of such a loop, or of rank `rank` of a mesh: `parameters` are master weights and,
/// with bf16, their rounded copies; `update` is batches, sums and scratch. Not counted: CUDA's
/// context, the libraries' code and cuBLASLt's workspace (some hundred MiB). Host memory of the
/// loop: 4 bytes a parameter, 4 more after the first `gradient` and 8 more after the first
/// `adam_moments`. Needs a build with CUDA kernels. Needs a device only for cuDNN attention; with a
/// device, head dimensions are checked against that of the calling thread. THROWS: ConfigError as
/// make_cuda_loop.
[[nodiscard]] MemoryEstimate cuda_loop_memory(const ModelLayout& layout,
                                              const LanguageModelOptions& options,
                                              const CudaLoopSettings& settings = {}, int rank = 0);

/// True if cuDNN computes the attention of such a loop's steps on the calling thread's device.
/// THROWS: as cuda_loop_memory.
[[nodiscard]] bool attention_is_cudnn(const ModelLayout& layout,
                                      const LanguageModelOptions& options);

/// Values that a step's kernels accumulate, and one that they read.
struct CudaStepTotals {
  cuda::LossTotals losses;
  double squares;         // of the gradient
  double gradient_scale;  // from the host: 1 / (targets in the step's mean)
};

class CudaLoop final : public InnerLoop, public cuda::ResidentAdam {
 public:
  /// peers: the other ranks, for a rank of a mesh; borrowed, or null. Batches, options and
  /// gradients are then this rank's; losses are those of all ranks. THROWS: as make_cuda_loop.
  CudaLoop(const LanguageModelOptions& options, BatchProvider batches,
           const CudaLoopSettings& settings = {}, CudaPeers* peers = nullptr);

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override;
  /// Queues the copy and returns.
  void wrote_values(CanonicalRange elements) override;
  /// THROWS: SystemError as adam_moments. Does nothing for an optimizer other than AdamW.
  void read_moments(CanonicalRange elements) override;
  void wrote_moments(CanonicalRange elements) override;
  [[nodiscard]] float* device_values() override { return values_.data(); }
  [[nodiscard]] cuda::Stream& stream() override { return stream_; }
  void wrote_device_values(CanonicalRange elements) override;
  [[nodiscard]] bool go_beside(cuda::OverlapHooks* beside) override;
  [[nodiscard]] float* device_gradients() override { return gradients_.data(); }
  void keep_gradients_on_device(bool keep) override { gradients_stay_ = keep; }
  [[nodiscard]] float* device_moment(int index) override;
  void wrote_device_moments() override;
  /// THROWS: RunError as LanguageModelLoop; parameters and moments are then those before the step.
  /// SystemError when the device has failed (cuda::DeviceLost) or lacks memory; the loop must not
  /// be used afterwards.
  InnerStep train_step(StepIndex t) override;
  /// Reports all gradients as ready at its end.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  /// REQUIRES: gradients do not stay on the device; else the host's copies are of an earlier step.
  double apply_gradients(StepIndex t) override;
  /// The same with `gradients`, (elements,) in pinned memory, possibly another rank's.
  double apply_gradients(StepIndex t, const float* gradients);
  /// `gradients` without the copy to the host.
  InnerStep pass(StepIndex t);
  /// Copies all of the source's values to the device, into the gradients' memory, unless they are
  /// the loop's own.
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override { return schedule_.at(t); }
  [[nodiscard]] AdamSettings adam_settings() const override;
  /// THROWS: as CudaMoments; the loop is then unchanged.
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  /// The same format as LanguageModelLoop's, so a run may resume on another device.
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  /// Copies written moments to the device. Blocks.
  void settle_moments() const;
  /// Sum of squares of the values, equal for equal bits. Blocks.
  [[nodiscard]] double squares_of_values();
  /// Copies moments and the number of updates from another rank. Blocks. REQUIRES: equal options;
  /// `other` has called settle_moments.
  void take_optimizer(const CudaLoop& other);
  /// The cuBLASLt handle with its choice of algorithms for the shapes of a step.
  [[nodiscard]] const cuda::Blas& products() const { return blas_; }

 private:
  void allocate();
  [[nodiscard]] CudaMoments& moments();  // created at the first request
  /// Called before other code than `beside_` reads or writes a step's results.
  void settle_beside() const {
    if (beside_ != nullptr) beside_->values_are_asked_for();
  }
  void repeat(RepeatedWork& work, std::int64_t shape, const RepeatedWork::Queue& queue);
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(layout_.elements());
  }
  /// The bf16 copy of `masters`, if matrix products use one.
  [[nodiscard]] CudaValues round(const float* masters, CanonicalRange elements);
  [[nodiscard]] CudaValues own_values();
  /// Copies the values of `source` to the device; `source` may change afterwards.
  [[nodiscard]] CudaValues values_of(const ParameterSource& source);
  void copy_values(const ParameterSource& source, float* to);
  [[nodiscard]] bool is_own(const ParameterSource& source) const;
  [[nodiscard]] CudaBatches::Step queue_pass(StepIndex t);
  void queue_update(StepIndex t);
  /// Sums losses, and gradients as they become final, over the ranks.
  void sum_over_ranks();
  /// Blocks until the pass is complete. RETURNS: its result. THROWS: RunError.
  [[nodiscard]] InnerStep finish_pass(StepIndex t, const CudaBatches::Step& step);
  [[nodiscard]] double finish_update(StepIndex t);
  [[nodiscard]] LossSum sum_losses(const TokenBatch& batch, const ParameterSource& source);

  /// Gradients that become final together, and are summed over the ranks together.
  struct Bucket {
    CanonicalRange elements;
    cuda::Event final_;
  };

  LanguageModelOptions options_;
  CudaLoopSettings settings_;
  CudaPeers* peers_;
  ModelLayout layout_;
  std::vector<CanonicalRange> added_;  // gradients that must be zero before a pass
  LearningRateSchedule schedule_;
  BatchProvider provider_;
  std::vector<Parameter> parameters_;
  cuda::PinnedArray<float> mirror_;            // of values_
  cuda::PinnedArray<float> gradients_mirror_;  // allocated at the first `gradient`
  cuda::PinnedArray<CudaStepTotals> host_totals_;
  bool mirror_is_right_ = true;  // true: every value of mirror_ is valid
  bool gradients_stay_ = false;  // gradients stay on the device
  bool working_is_own_ = true;   // false: working_ is rounded from a source's values
  cuda::DeviceArray<float> values_;
  cuda::DeviceArray<kernels::Bf16> working_;  // bf16
  cuda::DeviceArray<float> gradients_;        // between steps, and forward only: also holds a
                                              // source's values
  cuda::DeviceArray<double> squares_;         // scratch of the norm
  cuda::DeviceArray<CudaStepTotals> totals_;
  cuda::Blas blas_;                         // of passes and of updates
  std::optional<CudaOptimizer> optimizer_;  // absent when forward only
  // Created at the first request; `save` settles them.
  mutable std::optional<CudaMoments> moments_;
  std::unique_ptr<CudaModel> model_;
  RepeatedWork pass_{"forward and backward pass"}, update_{"update"};
  cuda::OverlapHooks* beside_ = nullptr;
  std::optional<CudaBatches> batches_;
  std::deque<Bucket> buckets_;   // with peers: in the order in which they become final
  cuda::Staging staging_;        // of a source's values
  mutable cuda::Stream stream_;  // destroyed before the memory it uses; `save` copies
};

}  // namespace isthmus
