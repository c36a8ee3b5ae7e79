// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh of devices with tensor or pipeline parallelism: the counterpart of MeshRank
// (mesh_rank.h) on the CPU, with its stages' weights, gradients, moments and activations in device
// memory. A CudaGroup sums over tensor- and data-parallel ranks; messages between stages pass
// through pinned host memory. The host waits for the device at each sum and message.
//
// One thread drives a rank, with its device; ranks run concurrently and meet in their groups.
// DETERMINISM: through the host sums are in rank order, and micro-batches are added in ascending
// order, so results depend only on the mesh; NCCL chooses its order.
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
  MeshOptions mesh;  // of ranks that are threads, with fp32 codecs and zero = 0
  DeviceAttention attention = DeviceAttention::kOwn;
  std::int64_t logits_bytes = CudaModelOptions().logits_bytes;
};

class CudaMeshRank {
 public:
  /// Collective over `world`; `world` and `canonical` are borrowed. REQUIRES: check_mesh and
  /// check_cuda_options have passed. THROWS: as CudaChunk.
  CudaMeshRank(const ModelLayout& canonical, const CudaMeshRankOptions& options,
               Communicator& world, int device, const DeviceSums& sums);
  ~CudaMeshRank();
  CudaMeshRank(const CudaMeshRank&) = delete;
  CudaMeshRank& operator=(const CudaMeshRank&) = delete;
  /// Device memory of such a rank. THROWS: as CudaModel::bytes.
  [[nodiscard]] static MemoryEstimate memory(const ModelLayout& canonical,
                                             const CudaMeshRankOptions& options, int rank);

  [[nodiscard]] const MeshPosition& position() const { return at_; }
  [[nodiscard]] bool has_head() const { return chunks_.back()->last(); }

  // These call all chunks; see CudaChunk.
  void use(const float* canonical);
  void use_own();
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);
  void write_squares(TensorSquares& squares);
  void reset_optimizer(std::int64_t updates);

  /// Forward and backward of this rank's samples of the site's `batch`, then the sums of the
  /// gradients. gradient_scale: 1 / (targets in the site's mean). RETURNS: the losses of its
  /// samples on ranks that have the head, else zero. Collective.
  LossSum train(const TokenBatch& batch, double gradient_scale);
  /// Forward only, for this rank's share of any number of sequences. RETURNS: as `train`.
  LossSum loss(const TokenBatch& batch);
  /// One update of all weights; then the first stage gets the last stage's part of a tied table.
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
  /// Block until the values have been copied to or from the device.
  void send(const float* from, std::int64_t values, int peer, int tag);
  void receive(float* into, std::int64_t values, int peer, int tag);
  void sum_gradients();
  void sum_over_tensor_ranks(CudaChunk& chunk);
  /// Sends a table's values from the chunk that has them to the one that needs them.
  void give_table_gradients();
  void give_table();
  void begin_losses();
  [[nodiscard]] LossSum losses();

  CudaMeshRankOptions options_;
  MeshPosition at_;
  Communicator& world_;
  std::unique_ptr<CudaGroup> tensor_, data_;  // null if the rank is alone
  std::unique_ptr<CudaGroup> copies_;         // the same key heads; null if no other rank has them
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
  cuda::Stream stream_;  // destroyed before the memory it uses
};

}  // namespace isthmus
