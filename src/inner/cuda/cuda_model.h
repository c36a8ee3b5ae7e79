// SPDX-License-Identifier: Apache-2.0
// A language model on a CUDA device: embedding, layers, final norm and output head with
// cross-entropy, forward and backward, over weights and gradients in the canonical layout; the
// counterpart of LanguageModel (inner/model/model.h) on the CPU.
//
// All activations are in memory allocated once for the largest batch. A pass queues work on one
// stream. It neither allocates nor blocks, so after a first run it can be captured in a CUDA graph.
// Exception: with tensor parallelism the host waits for the sums over ranks. Values and gradients
// belong to the caller. One thread drives a model.
// DETERMINISM: the same bits in every run on one kind of device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "inner/cuda/cuda_block.h"
#include "inner/loop/device_attention.h"
#include "inner/model/model_embedding.h"
#include "inner/model/model_layout.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul.h"

namespace isthmus {

struct CudaModelOptions {
  enum class Purpose {
    kTraining,   // keeps every layer's activations for the backward pass
    kRecompute,  // training that keeps only the residual stream and runs each layer forward again
    kInference,  // keeps one layer's activations
  };
  std::int64_t sequences = 1, length = 1;  // of the largest batch
  Purpose purpose = Purpose::kTraining;
  bool bf16 = false;  // matrix products' operands, branches and wide gradients are Bf16
  /// Kernel for windows of `length` tokens, `sequences` at a time. Other windows, in evaluations,
  /// use the kernels of this project.
  DeviceAttention attention = DeviceAttention::kOwn;
  std::int64_t logits_bytes = std::int64_t{1} << 30;  // largest size of a chunk of logits
  /// For a rank that shares the layers with other ranks: their group, borrowed, and in `vocabulary`
  /// the rank's rows of it; the layout is then that of the rank's share. Null: the rank has all of
  /// each layer.
  CudaGroup* tensor = nullptr;
  int tensor_ranks = 1;  // size of that group, for callers that count bytes without one
  VocabularyShare vocabulary = {};
  /// Borrowed memory of Bytes::logits, which models that run in turn on one stream can share, since
  /// it holds nothing between calls; null: the model has its own.
  std::byte* head = nullptr;
};

/// A batch in device memory, (sequences, length) each. REQUIRES: ids in [0, vocab), targets below
/// vocab; a negative one does not count.
struct CudaTokens {
  const std::int32_t* ids = nullptr;
  const std::int32_t* targets = nullptr;
  const std::int32_t* order = nullptr;  // cuda::embedding_order of the ids; a backward pass only
  std::int64_t sequences = 0, length = 0;
  [[nodiscard]] std::int64_t rows() const { return sequences * length; }
};

/// Destination and scale of the gradients of loss + z-loss.
struct CudaGradients {
  float* flat = nullptr;  // canonical layout: added to, except as `first` says
  /// True in a step's first micro-batch: gradients of the layers' matrices are stored, not added,
  /// so that only CudaModel::added_ranges must be zero.
  bool first = false;
  const double* scale = nullptr;  // in device memory: 1 / (targets in the mean)
  /// Called while the pass is queued, for each f of `final_points`: the gradients of elements from
  /// f on are final. May be empty.
  std::function<void(std::int64_t first)> final_from = {};
};

class CudaModel {
 public:
  virtual ~CudaModel() = default;

  struct Bytes {
    std::int64_t activations = 0, logits = 0;
    bool cudnn = false;  // true: cuDNN computes the model's attention
  };
  /// Device memory of such a model. Needs no device, except with cuDNN attention: then it needs the
  /// device that will run the model, since the size depends on cuDNN's plans. THROWS: as
  /// make_cuda_model.
  [[nodiscard]] static Bytes bytes(const ModelLayout& layout, const CudaModelOptions& options);
  /// Elements that arrays of values and of gradients must have. The head's matrix products use the
  /// vocabulary's rows rounded up. The surplus rows are, with a tied head, those of the next
  /// tensors, else memory behind the layout. Their logits are not read and their gradients are
  /// zero, so any finite values may be there; zeros are added to their gradients.
  [[nodiscard]] static std::int64_t array_elements(const ModelLayout& layout);

  /// The elements f, descending to 0, such that during a backward pass the gradients from f on
  /// become final together.
  [[nodiscard]] static std::vector<std::int64_t> final_points(const ModelLayout& layout);

  /// Ranges to which every pass adds: all but the layers' matrices, ascending, adjacent ranges
  /// merged.
  [[nodiscard]] static std::vector<CanonicalRange> added_ranges(const ModelLayout& layout);

  /// Adds the batch's sums to `totals`, in device memory.
  virtual void loss(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                    cuda::LossTotals* totals) = 0;
  /// The same, and gradients. REQUIRES: made for training.
  virtual void loss_and_gradients(cuda::Stream& stream, const CudaValues& values,
                                  const CudaTokens& tokens, const CudaGradients& gradients,
                                  cuda::LossTotals* totals) = 0;

  // A pipeline stage's parts of a pass, as in LanguageModel (inner/model/model.h): forward, head
  // (on the stage that has it), backward, each once per micro-batch in this order. A model holds
  // one micro-batch at a time. The layout is that of a part of a model.

  /// (rows, d_model): the residual stream before the first layer. The caller fills it on a stage
  /// without embedding.
  [[nodiscard]] virtual float* stage_input() const = 0;
  /// The stream after the last layer of a stage without head, of the last stage_forward.
  [[nodiscard]] virtual const float* stage_output() const = 0;
  /// On entry to `stage_backward` the gradient of the stage's output, which the caller fills on a
  /// stage without head; on return the gradient of the stage's input.
  [[nodiscard]] virtual float* stage_gradient() const = 0;
  /// keep: true if a backward pass follows.
  virtual void stage_forward(cuda::Stream& stream, const CudaValues& values,
                             const CudaTokens& tokens, bool keep) = 0;
  /// gradients: null if no backward pass follows. Adds the losses over the whole vocabulary to
  /// `totals`.
  virtual void stage_head(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                          const CudaGradients* gradients, cuda::LossTotals* totals) = 0;
  virtual void stage_backward(cuda::Stream& stream, const CudaValues& values,
                              const CudaTokens& tokens, const CudaGradients& gradients) = 0;
};

/// `layout` and `blas` are borrowed; `blas` belongs to the stream of the passes. THROWS:
/// ConfigError when the device's kernels do not support the shape, and when cuDNN is required but
/// missing or does not support it; OutOfDeviceMemory.
[[nodiscard]] std::unique_ptr<CudaModel> make_cuda_model(const ModelLayout& layout,
                                                         const CudaModelOptions& options,
                                                         cuda::Blas& blas);

}  // namespace isthmus
