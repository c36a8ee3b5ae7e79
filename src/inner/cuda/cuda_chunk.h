// SPDX-License-Identifier: Apache-2.0
// One virtual stage of a rank of a mesh of devices: its share of weights, gradients and moments in
// device memory, and the models that its micro-batches pass through; the counterpart of Chunk and
// StageState on the CPU. Used by the rank's thread, on its device and stream.
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
#include "inner/mesh/rank_layout.h"
#include "inner/mesh/stage_state.h"
#include "inner/model/weight_copies.h"
#include "isthmus/config.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// A rank's squared norms of its gradients, (canonical tensors,) each; negative: it has none.
struct TensorSquares {
  std::vector<double> own;     // of tensors with RankLayout::answers_for
  std::vector<double> copies;  // of tensors of which another rank answers for the same values
  explicit TensorSquares(std::size_t tensors) : own(tensors, -1), copies(tensors, -1) {}
};

struct CudaChunkOptions {
  CudaModelOptions model;  // of a micro-batch; the chunk sets the shared scratch
  InnerConfig inner;
  std::size_t slots = 1;  // micro-batches whose activations are held at a time
};

class CudaChunk {
 public:
  /// The activations of one micro-batch on their way through the chunk.
  struct Slot {
    std::unique_ptr<CudaModel> model;
    int micro_batch = -1;  // -1: free
  };

  /// tensor: the ranks that share the layers; null if one rank has all. `tensor`, `blas` and
  /// `stream` are borrowed. THROWS: cuda::OutOfDeviceMemory; ConfigError as make_cuda_model.
  CudaChunk(RankLayout layout, const CudaChunkOptions& options, CudaGroup* tensor, cuda::Blas& blas,
            cuda::Stream& stream);
  /// Device memory of such a chunk.
  [[nodiscard]] static MemoryEstimate memory(const RankLayout& layout,
                                             const CudaChunkOptions& options, int tensor_ranks);

  [[nodiscard]] const RankLayout& layout() const { return layout_; }
  [[nodiscard]] bool first() const { return layout_.local().part().embedding; }  // of all stages
  [[nodiscard]] bool last() const { return layout_.local().part().head; }
  [[nodiscard]] std::span<Slot> slots() { return slots_; }
  /// The micro-batch's slot, or a free one if it has none. REQUIRES: there is such a slot.
  [[nodiscard]] Slot& slot_of(int micro_batch);

  /// The weights that passes read: the chunk's own, or those of `use`.
  [[nodiscard]] CudaValues values();
  /// The next forward-only passes read these canonical weights, which overwrite the gradients.
  void use(const float* canonical);
  /// The next passes read the chunk's own weights again.
  void use_own() { others_ = false; }

  [[nodiscard]] float* gradients() const { return gradients_.data(); }
  void clear_gradients();
  /// The chunk's part of a tied table, on a stage that has only the embedding or only the head.
  [[nodiscard]] CanonicalRange table() const { return table_; }
  /// read_table: copies the table's weights or gradients to host_table(), in pinned memory.
  /// take_table: copies host_table() to the weights. add_table_gradients: adds it to the gradients.
  /// Block.
  [[nodiscard]] float* host_table() { return mirror_.data() + table_.begin; }
  void read_table(RankValues what);
  void take_table();
  void add_table_gradients();

  /// collect: canonical values of these tensors := the chunk's, as far as it answers for them.
  /// hand_out: the inverse, for all values that it has. Block.
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);

  /// Writes squared norms of the chunk's gradients by canonical tensor; entries of other tensors do
  /// not change. Blocks.
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
  /// Ranges of these canonical tensors; with_table: also a tied table that another stage updates.
  [[nodiscard]] std::vector<CanonicalRange> places(TensorRange tensors, bool with_table) const;
  void round(const float* masters, CanonicalRange range);

  RankLayout layout_;
  cuda::Stream& stream_;
  cuda::Blas& blas_;
  CanonicalRange table_{0, 0};
  cuda::PinnedArray<float> mirror_;
  cuda::DeviceArray<float> values_, gradients_, added_;  // added_: gradients of a table from
                                                         // another stage
  cuda::DeviceArray<kernels::Bf16> working_;             // bf16
  CudaOptimizer optimizer_;
  cuda::DeviceArray<double> no_clip_;  // zero: clipping is done by gradient_scale
  struct PartOf {
    std::size_t tensor = 0;  // canonical
    bool answers = false;
  };
  std::vector<PartOf> part_of_;
  cuda::DeviceArray<cuda::ParameterRun> parts_;
  cuda::DeviceArray<double> part_squares_;
  cuda::PinnedArray<double> host_part_squares_;
  bool others_ = false;                // passes read gradients_
  bool working_is_own_ = true;         // false: working_ is rounded from other values
  cuda::DeviceArray<std::byte> head_;  // shared by the slots' models
  std::vector<Slot> slots_;
};

}  // namespace isthmus
