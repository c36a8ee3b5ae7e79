// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of one site on several CUDA devices: data-parallel ranks, threads of this
// process, each with a CudaLoop on a device of its own and its share of a step's samples. Gradients
// are summed over the ranks bucket by bucket while the backward pass goes on (cuda_peers.h), by
// NCCL or by way of pinned host memory; then all ranks update alike, so weights and moments are the
// same bits everywhere and the first rank's are the site's.
//
// What others read and write is the first rank's; what they have written goes to the other ranks,
// from device to device, before the next step, moments before the next update. Evaluations are the
// first rank's alone.
//
// Threads: one drives the mesh; it keeps the device of the first rank.
// DETERMINISM: by way of the host gradients are added in rank order, as by a mesh on the CPU; NCCL
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
  std::vector<int> devices;  // of each rank; with `sums` unlike ones, with Muon of one kind
  DeviceSums sums = {};      // empty: by way of pinned memory of the host
  CudaLoopSettings loop = {};
};

/// With tp and pp at 1 a CudaMesh; else ranks that have shares of the layers (cuda_mesh_model.h).
/// THROWS: ConfigError for what a mesh of devices does not do (check_cuda_options), else as
/// make_cuda_loop.
[[nodiscard]] std::unique_ptr<InnerLoop> make_cuda_mesh(const LanguageModelOptions& options,
                                                        BatchProvider batches,
                                                        const CudaMeshOptions& mesh);

class CudaMesh final : public InnerLoop, public cuda::ResidentAdam {
 public:
  /// THROWS: as make_cuda_mesh; SystemError where NCCL cannot join the devices.
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
  /// A step here waits for sums on the host, so nothing goes beside it.
  [[nodiscard]] bool go_beside(cuda::BesideStep* beside) override;
  [[nodiscard]] float* device_gradients() override;
  void keep_gradients_on_device(bool keep) override;
  [[nodiscard]] float* device_moment(int index) override;
  void wrote_device_moments() override;
  /// THROWS (what passes do): RunError as CudaLoop's, with parameters and moments as before the
  /// step; of a rank that is lost, as RankTeam::run, and the mesh is of no use any more.
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

  /// A rank's own loop, for tests: between steps, on its device.
  [[nodiscard]] CudaLoop& loop_of(int rank);

 private:
  class Batches;
  class Peer;

  [[nodiscard]] CudaLoop& first() const;
  /// body(rank) for all ranks side by side, each with its device. THROWS: as RankTeam::run.
  void run(const std::function<void(Peer&)>& body);
  /// A part of a step on all ranks, after they have what was written. What it returns is the same
  /// on all.
  InnerStep step_on_all(StepIndex t, const std::function<InnerStep(CudaLoop&)>& part);
  /// THROWS: RunError where a rank has other weights than the first.
  void check_weights(StepIndex t);
  void keep_written(CanonicalRange elements);
  void hand_out();
  void hand_out_moments();

  std::unique_ptr<Batches> batches_;
  CudaTeam team_;
  std::vector<std::unique_ptr<Peer>> ranks_;
  CanonicalRange written_{0, 0};  // at the first rank, and not yet at the others
  bool moments_written_ = false;  // likewise
};

}  // namespace isthmus
