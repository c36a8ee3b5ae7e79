// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of one site on a CUDA device: what LanguageModelLoop does on the CPU, with
// weights, gradients, moments and activations in the device's memory.
//
// The master weights live on the device. `parameters()[i].values` are mirrors in pinned host
// memory: right after `read_values` of their elements, and taken over by `wrote_values`; as
// cuda::ResidentValues they are read and written where they are. Gradients
// reach the host in `gradients`, unless they are to stay, and leave it in `apply_gradients` only;
// Adam's moments come and go as the weights do, once somebody has asked for them (cuda_moments.h).
// As cuda::ResidentAdam both are read and written where they are. A step is two graphs, the
// pass and the update, once it has run; nothing in them waits for the host. Loss and norm come back
// when all is done; by then the next step's batch is on its way.
//
// As a rank of a mesh (cuda_mesh.h) the pass is cut into graphs where buckets of gradients are
// final: these are summed over the ranks while the pass goes on. The update is queued once all are.
//
// Threads: one drives the loop, on the device that `cuda::use_device` has chosen for it.
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

/// Of one rank. THROWS: ConfigError for what a device does not do (check_cuda_options, some head
/// dimensions) and sizes that do not fit together; SystemError where there is no device, and where
/// its memory does not suffice, saying by part how much is needed and which setting lowers it.
[[nodiscard]] std::unique_ptr<InnerLoop> make_cuda_loop(const LanguageModelOptions& options,
                                                        BatchProvider batches);

/// What the defaults are right for, but not for tests.
struct CudaLoopSettings {
  bool graphs = true;
  std::int64_t logits_bytes = CudaModelOptions().logits_bytes;
  /// Least values whose gradients ranks sum at a time, but for the last ones: 16 MiB of fp32, so
  /// that meeting for them is small beside it.
  std::int64_t bucket_values = std::int64_t{1} << 22;
};

/// Bytes of device memory that such a loop holds, or rank `rank` of a mesh: `parameters` are master
/// weights and, with bf16, their rounded copies, `update` batches, sums and scratch. Not counted:
/// CUDA's context, the libraries' code and cuBLASLt's workspace (some hundred MiB). On the host the
/// loop has 4 bytes a parameter, 4 more once `gradient` is asked for and 8 once `adam_moments` is.
/// Needs a build with CUDA's kernels, and for attention by cuDNN the device, else none; where there
/// is one, heads are checked against the calling thread's. THROWS: ConfigError as make_cuda_loop.
[[nodiscard]] MemoryEstimate cuda_loop_memory(const ModelLayout& layout,
                                              const LanguageModelOptions& options,
                                              const CudaLoopSettings& settings = {}, int rank = 0);

/// Whether cuDNN computes the attention of the steps of such a loop on the calling thread's device.
/// THROWS: as cuda_loop_memory.
[[nodiscard]] bool attention_is_cudnn(const ModelLayout& layout,
                                      const LanguageModelOptions& options);

/// What a step's kernels add up, and read.
struct CudaStepTotals {
  cuda::LossTotals losses;
  double squares;         // of the gradient
  double gradient_scale;  // from the host: 1 / (targets in the step's mean)
};

class CudaLoop final : public InnerLoop, public cuda::ResidentAdam {
 public:
  /// peers: of a loop that is a rank of a mesh; borrowed, or null. Batches, options and what the
  /// loop tells of gradients are then the rank's own, losses those of all. THROWS: as
  /// make_cuda_loop.
  CudaLoop(const LanguageModelOptions& options, BatchProvider batches,
           const CudaLoopSettings& settings = {}, CudaPeers* peers = nullptr);

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override;
  /// Queues the copy and returns.
  void wrote_values(CanonicalRange elements) override;
  /// THROWS: SystemError as adam_moments. Of another optimizer than AdamW it does nothing.
  void read_moments(CanonicalRange elements) override;
  void wrote_moments(CanonicalRange elements) override;
  [[nodiscard]] float* device_values() override { return values_.data(); }
  [[nodiscard]] cuda::Stream& stream() override { return stream_; }
  void wrote_device_values(CanonicalRange elements) override;
  [[nodiscard]] bool go_beside(cuda::BesideStep* beside) override;
  [[nodiscard]] float* device_gradients() override { return gradients_.data(); }
  void keep_gradients_on_device(bool keep) override { gradients_stay_ = keep; }
  [[nodiscard]] float* device_moment(int index) override;
  void wrote_device_moments() override;
  /// THROWS: RunError as LanguageModelLoop's; parameters and moments are then those before it.
  /// SystemError where the device has failed (cuda::DeviceLost) or lacks memory; the loop is then
  /// of no use any more.
  InnerStep train_step(StepIndex t) override;
  /// Announces all gradients at its end.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  /// REQUIRES: gradients do not stay on the device, where the host's are of an earlier step.
  double apply_gradients(StepIndex t) override;
  /// The same with `gradients`, (elements,) in pinned memory, of another rank maybe.
  double apply_gradients(StepIndex t, const float* gradients);
  /// `gradients` without the copy to the host.
  InnerStep pass(StepIndex t);
  /// Takes all of the source's values to the device, unless they are the loop's own, where they
  /// use the gradients' memory.
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override { return schedule_.at(t); }
  [[nodiscard]] AdamSettings adam_settings() const override;
  /// THROWS: as CudaMoments; the loop is as it was then.
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  /// The same form as LanguageModelLoop's: a run may go on elsewhere.
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  /// What others have written of the moments is on the device. Blocks.
  void settle_moments() const;
  /// The sum of squares of the values, the same of the same bits. Blocks.
  [[nodiscard]] double squares_of_values();
  /// Takes over moments and number of updates of another rank. Blocks. REQUIRES: the same options;
  /// `other` has settled its moments.
  void take_optimizer(const CudaLoop& other);
  /// What has multiplied, for the shapes of a step.
  [[nodiscard]] const cuda::Blas& products() const { return blas_; }

 private:
  void allocate();
  [[nodiscard]] CudaMoments& moments();  // made, where nobody has asked for them before
  /// Before others than the one beside the step read or write what a step leaves behind.
  void settle_beside() const {
    if (beside_ != nullptr) beside_->values_are_asked_for();
  }
  void repeat(RepeatedWork& work, std::int64_t shape, const RepeatedWork::Queue& queue);
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(layout_.elements());
  }
  /// The rounded copy of `masters`, where products want one.
  [[nodiscard]] CudaValues round(const float* masters, CanonicalRange elements);
  [[nodiscard]] CudaValues own_values();
  /// The values of `source` on the device; it may go or change afterwards.
  [[nodiscard]] CudaValues values_of(const ParameterSource& source);
  void copy_values(const ParameterSource& source, float* to);
  [[nodiscard]] bool is_own(const ParameterSource& source) const;
  [[nodiscard]] CudaBatches::Step queue_pass(StepIndex t);
  void queue_update(StepIndex t);
  /// Sums gradients, as they become final, and losses over the ranks.
  void sum_over_ranks();
  /// Blocks until all is done. RETURNS: what came back. THROWS: RunError.
  [[nodiscard]] InnerStep finish_pass(StepIndex t, const CudaBatches::Step& step);
  [[nodiscard]] double finish_update(StepIndex t);
  [[nodiscard]] LossSum sum_losses(const TokenBatch& batch, const ParameterSource& source);

  /// Gradients that become final together, and are summed over the ranks so.
  struct Bucket {
    CanonicalRange elements;
    cuda::Event final_;
  };

  LanguageModelOptions options_;
  CudaLoopSettings settings_;
  CudaPeers* peers_;
  ModelLayout layout_;
  std::vector<CanonicalRange> added_;  // of gradients: zeros before a pass
  LearningRateSchedule schedule_;
  BatchProvider provider_;
  std::vector<Parameter> parameters_;
  cuda::PinnedArray<float> mirror_;            // of values_
  cuda::PinnedArray<float> gradients_mirror_;  // once they are asked for
  cuda::PinnedArray<CudaStepTotals> host_totals_;
  bool mirror_is_right_ = true;  // all of it
  bool gradients_stay_ = false;  // on the device
  bool working_is_own_ = true;   // else working_ is rounded from a source's values
  cuda::DeviceArray<float> values_;
  cuda::DeviceArray<kernels::Bf16> working_;  // bf16
  cuda::DeviceArray<float> gradients_;        // between steps, and forward only: a source's values
  cuda::DeviceArray<double> squares_;         // scratch of the norm
  cuda::DeviceArray<CudaStepTotals> totals_;
  cuda::Blas blas_;                         // of passes and of updates
  std::optional<CudaOptimizer> optimizer_;  // none when forward only
  // Once they are asked for; `save` settles them.
  mutable std::optional<CudaMoments> moments_;
  std::unique_ptr<CudaModel> model_;
  RepeatedWork pass_{"forward and backward pass"}, update_{"update"};
  cuda::BesideStep* beside_ = nullptr;
  std::optional<CudaBatches> batches_;
  std::deque<Bucket> buckets_;   // with peers: in the order in which they become final
  cuda::Staging staging_;        // of a source's values
  mutable cuda::Stream stream_;  // ends before what it reads and writes; `save` copies
};

}  // namespace isthmus
