// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh of devices with tensor or pipeline parallelism: what MeshRank (mesh_rank.h) is
// on the CPU, with its stages' weights, gradients, moments and activations in its device's memory.
// Sums over tensor- and data-parallel ranks are a CudaGroup's; what goes from stage to stage comes
// by way of pinned memory of the host. The host waits for the device at each sum and message.
//
// One thread drives a rank, with its device; ranks run side by side and meet in their groups.
// DETERMINISM: by way of the host sums go in rank order, and micro-batches are added in ascending
// order, so results depend on the mesh alone; NCCL chooses its order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "inner/cuda/cuda_chunk.h"
#include "inner/cuda/cuda_group.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/model/model.h"

namespace isthmus {

struct CudaMeshRankOptions {
  MeshOptions mesh;  // of threads; its codecs fp32, zero 0
  DeviceAttention attention = DeviceAttention::kOwn;
  std::int64_t logits_bytes = CudaModelOptions().logits_bytes;
};

class CudaMeshRank {
 public:
  /// Collective over `world`, which is borrowed as `canonical` is. REQUIRES: check_mesh and
  /// check_cuda_options have passed. THROWS: as CudaChunk.
  CudaMeshRank(const ModelLayout& canonical, const CudaMeshRankOptions& options,
               Communicator& world, int device, const DeviceSums& sums);
  ~CudaMeshRank();
  CudaMeshRank(const CudaMeshRank&) = delete;
  CudaMeshRank& operator=(const CudaMeshRank&) = delete;
  /// What such a rank holds of its device's memory. THROWS: as CudaModel::bytes.
  [[nodiscard]] static MemoryEstimate memory(const ModelLayout& canonical,
                                             const CudaMeshRankOptions& options, int rank);

  [[nodiscard]] const MeshPosition& position() const { return at_; }
  [[nodiscard]] bool has_head() const { return chunks_.back()->last(); }

  // What all chunks do; see CudaChunk.
  void use(const float* canonical);
  void use_own();
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);
  void write_squares(TensorSquares& squares);
  void reset_optimizer(std::int64_t updates);

  /// Forward and backward of this rank's samples of the site's `batch`, then the gradients' sums.
  /// gradient_scale: 1 / (targets in the site's mean). RETURNS: the losses of its samples on ranks
  /// that have the head, else nothing. Collective.
  LossSum train(const TokenBatch& batch, double gradient_scale);
  /// Forward only, of this rank's share of any number of sequences; returns as `train`.
  LossSum loss(const TokenBatch& batch);
  /// One update of all weights; the first stage then has the last one's part of a tied table.
  /// Collective.
  void update(double lr, double gradient_scale);

  [[nodiscard]] std::size_t pinned_bytes() const;

 private:
  class Tokens;

  [[nodiscard]] CudaGroup* tensor() { return tensor_ ? tensor_.get() : nullptr; }
  [[nodiscard]] int stage_rank(int pp) const;
  [[nodiscard]] std::int64_t rows() const;  // of a micro-batch
  void check(const TokenBatch& batch) const;
  void run(const PipelineOp& op);
  /// Block until the device has given or got the values.
  void send(const float* from, std::int64_t values, int peer, int tag);
  void receive(float* into, std::int64_t values, int peer, int tag);
  void sum_gradients();
  void sum_over_tensor_ranks(CudaChunk& chunk);
  /// A table's values go from the chunk that has them to the one that lacks them.
  void give_table_gradients();
  void give_table();
  void begin_losses();
  [[nodiscard]] LossSum losses();

  CudaMeshRankOptions options_;
  MeshPosition at_;
  Communicator& world_;
  std::unique_ptr<CudaGroup> tensor_, data_;  // null where the rank is alone
  std::unique_ptr<CudaGroup> copies_;         // the same key heads; null where each has its own
  std::unique_ptr<Communicator> pipeline_;
  PipelineSchedule schedule_;
  cuda::PinnedArray<float> message_;
  struct Totals {
    cuda::LossTotals losses;
    double gradient_scale;  // from the host
  };
  cuda::DeviceArray<Totals> totals_;
  cuda::PinnedArray<Totals> host_totals_;
  cuda::Blas blas_;
  std::unique_ptr<Tokens> tokens_;
  std::vector<std::unique_ptr<CudaChunk>> chunks_;
  cuda::Stream stream_;  // ends before what it reads and writes
};

}  // namespace isthmus
