// SPDX-License-Identifier: Apache-2.0
// One layer of a model on a CUDA device: as Block (inner/model/model_block.h), with two differences
// that save passes over memory. The residual stream enters and leaves as two summands x + branch,
// which the layer's first norm adds. Operands and results of matrix products have type T, float or
// Bf16, as have the branches and, in the backward pass, a copy of the stream's gradient.
//
// All pointers are device memory. Work is queued on the pass's stream; nothing allocates. Nothing
// blocks, except with tensor parallelism (CudaPass::tensor): the shape is then that of a rank's
// share, and each rank has its heads and its columns of the feed-forward part.
#pragma once

#include <cstdint>
#include <memory>

#include "inner/cuda/cuda_group.h"
#include "inner/model/model_shape.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul.h"

namespace isthmus {

/// The stream, scratch and sizes of a pass: `sequences` windows of `length` tokens.
struct CudaPass {
  cuda::Stream& stream;
  cuda::Blas& blas;
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  const float* tables = nullptr;  // CudaBlock::make_tables
  float* scratch = nullptr;       // of one kernel at a time; CudaBlock::kernel_scratch floats
  cuda::CudnnAttention* cudnn = nullptr;  // attention for the windows that it supports; null: this
                                          // project's kernels
  CudaGroup* tensor = nullptr;            // the ranks that share the layers; null: one rank has all
  [[nodiscard]] std::int64_t rows() const { return sequences * length; }

  /// True if this rank adds terms that are added once, not once a rank: the bias after a
  /// row-parallel matrix product.
  [[nodiscard]] bool adds_biases() const { return tensor == nullptr || tensor->rank() == 0; }
  /// values (rows, columns) := their sums over the ranks that share the layers (f and g of
  /// inner/model/tensor_parallel.h). With several ranks the host waits for the stream and for the
  /// other ranks.
  template <typename T>
  void sum_over_ranks(T* values, std::int64_t columns) const {
    if (tensor == nullptr) return;
    stream.synchronize();
    tensor->sum(values, rows() * columns);
  }
};

/// Contiguous tensors, in canonical order. Norms and embeddings are read as float; matrices and
/// biases of matrix products from `working`, which is the same memory in an fp32 model.
struct CudaValues {
  const float* masters = nullptr;
  cuda::ConstMatrixData working;

  /// The tensors from element `first` on.
  [[nodiscard]] CudaValues from(std::int64_t first) const {
    return {masters + first, working.is_bf16()
                                 ? cuda::ConstMatrixData(working.as<kernels::Bf16>() + first)
                                 : cuda::ConstMatrixData(working.as<float>() + first)};
  }
};

/// rows below are sequences * length; d is d_model.
template <typename T>
class CudaBlock {
 public:
  virtual ~CudaBlock() = default;

  /// Bytes of `memory`, and of `scratch` in a backward pass.
  [[nodiscard]] virtual std::int64_t memory_bytes(std::int64_t rows) const = 0;
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t rows) const = 0;
  /// Floats of CudaPass::scratch for a backward pass over such windows.
  [[nodiscard]] virtual std::size_t kernel_scratch(std::int64_t sequences,
                                                   std::int64_t length) const = 0;

  /// Values of CudaPass::tables; computed on the host.
  [[nodiscard]] virtual std::int64_t table_floats() const { return 0; }
  virtual void make_tables(float* tables) const { static_cast<void>(tables); }

  /// Arguments of a forward pass.
  struct Forward {
    const float* x = nullptr;   // (rows, d)
    float* sum = nullptr;       // (rows, d): x + branch; null: the stream is x alone, `branch` is
                                // not read
    T* branch = nullptr;        // (rows, d): on return the layer's last addition to the stream
    void* memory = nullptr;     // keeps what the backward pass reads
    bool for_backward = false;  // true: only `memory` is needed, `branch` is left unspecified
  };
  /// RETURNS: y (rows, d), inside `memory`, so that y + branch is the layer's output.
  virtual const float* forward(const CudaPass& pass, const CudaValues& layer,
                               const Forward& f) const = 0;

  struct Backward {
    const float* sum = nullptr;  // (rows, d): the sum of the forward pass, or its x
    void* memory = nullptr;      // invalid afterwards
    void* scratch = nullptr;     //
    T* other = nullptr;          // more scratch, (rows, max(d, query_width))
    float* d_stream = nullptr;   // (rows, d): gradient of the output, afterwards of `sum`
    T* d_branch = nullptr;       // the same, rounded; null if T is float
    bool lowest = false;         // true: d_branch is not read afterwards
    bool first = false;          // true: gradients of matrices are stored, not added
    float* gradients = nullptr;  // the layer's, laid out like its values: added to
  };
  virtual void backward(const CudaPass& pass, const CudaValues& layer, const Backward& b) const = 0;
};

/// THROWS: ConfigError naming the head dimension that the device's attention does not support.
template <typename T>
[[nodiscard]] std::unique_ptr<const CudaBlock<T>> make_cuda_gpt2_block(const ModelShape& shape);
template <typename T>
[[nodiscard]] std::unique_ptr<const CudaBlock<T>> make_cuda_llama_block(const ModelShape& shape);

}  // namespace isthmus
