// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of one site on several CUDA devices: data-parallel ranks, threads of this
// process, each with a CudaLoop on a separate device and a share of a step's samples. Gradients are
// summed over the ranks bucket by bucket during the backward pass (cuda_peers.h), by NCCL or
// through pinned host memory. Then all ranks make the same update, so weights and moments have the
// same bits on all ranks, and the first rank's are the site's.
//
// Callers read and write the first rank's values. Written values are copied to the other ranks,
// from device to device, before the next step; moments before the next update. Evaluations run on
// the first rank only.
//
// Threads: one thread drives the mesh; its current device stays that of the first rank.
// DETERMINISM: through the host gradients are added in rank order, as by a mesh on the CPU; NCCL
// chooses the order (transport/collectives/nccl_communicator.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "inner/cuda/cuda_group.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/cuda_team.h"
#include "inner/loop/language_model_loop.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_adam.h"

namespace isthmus {

struct CudaMeshOptions {
  std::vector<int> devices;  // device of each rank; with `sums` all different, with Muon all of one
                             // model
  DeviceSums sums = {};      // empty: through pinned host memory
  CudaLoopSettings loop = {};
};

/// With tp = pp = 1 a CudaMesh, else ranks with shares of the layers (cuda_mesh_model.h). THROWS:
/// ConfigError for options that a mesh of devices does not support (check_cuda_options), else as
/// make_cuda_loop.
[[nodiscard]] std::unique_ptr<InnerLoop> make_cuda_mesh(const LanguageModelOptions& options,
                                                        BatchProvider batches,
                                                        const CudaMeshOptions& mesh);

class CudaMesh final : public InnerLoop, public cuda::ResidentAdam {
 public:
  /// THROWS: as make_cuda_mesh; SystemError when NCCL cannot connect the devices.
  CudaMesh(const LanguageModelOptions& options, BatchProvider batches, const CudaMeshOptions& mesh);
  ~CudaMesh() override;
  CudaMesh(const CudaMesh&) = delete;
  CudaMesh& operator=(const CudaMesh&) = delete;

  [[nodiscard]] std::span<const Parameter> parameters() const override;
  void read_values(CanonicalRange elements) override;
  void wrote_values(CanonicalRange elements) override;
  void read_moments(CanonicalRange elements) override;
  void wrote_moments(CanonicalRange elements) override;
  [[nodiscard]] float* device_values() override;
  [[nodiscard]] cuda::Stream& stream() override;
  void wrote_device_values(CanonicalRange elements) override;
  /// Returns false: a step waits for sums on the host, so no work can overlap it.
  [[nodiscard]] bool go_beside(cuda::OverlapHooks* beside) override;
  [[nodiscard]] float* device_gradients() override;
  void keep_gradients_on_device(bool keep) override;
  [[nodiscard]] float* device_moment(int index) override;
  void wrote_device_moments() override;
  /// THROWS (all passes): RunError as CudaLoop, with parameters and moments as before the step; for
  /// a lost rank as RankTeam::run, and the mesh must not be used afterwards.
  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override;
  [[nodiscard]] AdamSettings adam_settings() const override;
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  /// A rank's loop, for tests: between steps, on its device.
  [[nodiscard]] CudaLoop& loop_of(int rank);

 private:
  class Batches;
  class Peer;

  [[nodiscard]] CudaLoop& first() const;
  /// Runs body(rank) on all ranks concurrently, each with its device. THROWS: as RankTeam::run.
  void run(const std::function<void(Peer&)>& body);
  /// Copies written values to all ranks, then runs a part of a step on them. RETURNS: the result,
  /// the same on all ranks.
  InnerStep step_on_all(StepIndex t, const std::function<InnerStep(CudaLoop&)>& part);
  /// THROWS: RunError when a rank's weights differ from the first rank's.
  void check_weights(StepIndex t);
  void keep_written(CanonicalRange elements);
  void hand_out();
  void hand_out_moments();

  std::unique_ptr<Batches> batches_;
  CudaTeam team_;
  std::vector<std::unique_ptr<Peer>> ranks_;
  CanonicalRange written_{0, 0};  // written at the first rank, not yet copied to the others
  bool moments_written_ = false;  // the same for moments
};

}  // namespace isthmus
