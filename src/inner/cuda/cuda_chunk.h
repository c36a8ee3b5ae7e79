// SPDX-License-Identifier: Apache-2.0
// One virtual stage of a rank of a mesh of devices: its share of weights, gradients and moments in
// the device's memory, and the models through which its micro-batches pass; what Chunk and
// ChunkState are on the CPU. One thread, that of the rank, on its device and stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "inner/cuda/cuda_group.h"
#include "inner/cuda/cuda_model.h"
#include "inner/cuda/cuda_optimizer.h"
#include "inner/loop/model_cost.h"
#include "inner/mesh/chunk_state.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/weight_copies.h"
#include "isthmus/config.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// A rank's squared norms of its gradients, (canonical tensors,) each; below zero: it has none.
struct TensorSquares {
  std::vector<double> own;     // of what the rank answers for
  std::vector<double> copies;  // of what another rank does, and has the same of
  explicit TensorSquares(std::size_t tensors) : own(tensors, -1), copies(tensors, -1) {}
};

struct CudaChunkOptions {
  CudaModelOptions model;  // of a micro-batch; what a rank's models share is put there
  InnerConfig inner;
  std::size_t slots = 1;  // micro-batches whose activations are held at a time
};

class CudaChunk {
 public:
  /// The activations of one micro-batch on their way through the chunk.
  struct Slot {
    std::unique_ptr<CudaModel> model;
    int micro_batch = -1;  // none: free
  };

  /// tensor: the ranks that share the layers; null where one has all. It, blas and the stream are
  /// borrowed. THROWS: cuda::OutOfDeviceMemory; ConfigError as make_cuda_model.
  CudaChunk(RankLayout layout, const CudaChunkOptions& options, CudaGroup* tensor, cuda::Blas& blas,
            cuda::Stream& stream);
  /// What such a chunk holds of its device's memory.
  [[nodiscard]] static MemoryEstimate memory(const RankLayout& layout,
                                             const CudaChunkOptions& options, int tensor_ranks);

  [[nodiscard]] const RankLayout& layout() const { return layout_; }
  [[nodiscard]] bool first() const { return layout_.local().part().embedding; }  // of all stages
  [[nodiscard]] bool last() const { return layout_.local().part().head; }
  [[nodiscard]] std::span<Slot> slots() { return slots_; }
  /// A micro-batch's slot; a free one where it has none yet. REQUIRES: one is free then.
  [[nodiscard]] Slot& slot_of(int micro_batch);

  /// What passes read: the chunk's own weights, or others from `use` on.
  [[nodiscard]] CudaValues values();
  /// The next passes, forward only, read these canonical weights, which take the gradients' place.
  void use(const float* canonical);
  /// The next ones the chunk's own again.
  void use_own() { others_ = false; }

  [[nodiscard]] float* gradients() const { return gradients_.data(); }
  void clear_gradients();
  /// Of its part of a tied table on the device: as the stage that has the embedding alone, or the
  /// one that has the head alone.
  [[nodiscard]] CanonicalRange table() const { return table_; }
  /// Blocks until the table's values (weights, gradients) are in pinned memory, or come from there.
  [[nodiscard]] float* host_table() { return mirror_.data() + table_.begin; }
  void read_table(RankValues what);
  void take_table();
  void add_table_gradients();

  /// canonical values of these tensors := the chunk's, those it answers for; the inverse is of all
  /// that it has. Block.
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);

  /// Squared norms of gradients of canonical tensors, those that the chunk does not have left as
  /// they are. Blocks.
  void write_squares(TensorSquares& squares);
  /// Queues one update of all weights from gradient_scale * the gradients.
  void update(double lr, double gradient_scale);
  void reset_optimizer(std::int64_t updates) { optimizer_.reset(stream_, updates); }

  [[nodiscard]] std::size_t pinned_bytes() const;

 private:
  [[nodiscard]] float* on_device(RankValues what) const;
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(layout_.local().elements());
  }
  /// Places of these canonical tensors, a tied table that another stage updates among them.
  [[nodiscard]] std::vector<CanonicalRange> places(TensorRange tensors, bool with_table) const;
  void round(const float* masters, CanonicalRange range);

  RankLayout layout_;
  cuda::Stream& stream_;
  cuda::Blas& blas_;
  CanonicalRange table_{0, 0};
  cuda::PinnedArray<float> mirror_;
  cuda::DeviceArray<float> values_, gradients_, added_;  // added_: of a table, from elsewhere
  cuda::DeviceArray<kernels::Bf16> working_;             // bf16
  CudaOptimizer optimizer_;
  cuda::DeviceArray<double> no_clip_;  // a norm of zero: what clips comes from outside
  struct PartOf {
    std::size_t tensor = 0;  // canonical
    bool answers = false;
  };
  std::vector<PartOf> part_of_;
  cuda::DeviceArray<cuda::ParameterRun> parts_;
  cuda::DeviceArray<double> part_squares_;
  cuda::PinnedArray<double> host_part_squares_;
  bool others_ = false;                // passes read gradients_
  bool working_is_own_ = true;         // else working_ is rounded from others
  cuda::DeviceArray<std::byte> head_;  // of the slots' models
  std::vector<Slot> slots_;
};

}  // namespace isthmus
