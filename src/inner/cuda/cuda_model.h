// SPDX-License-Identifier: Apache-2.0
// A language model on a CUDA device: embedding, layers, final norm and output head with
// cross-entropy, forward and backward, over weights and gradients in the canonical layout; what
// LanguageModel (inner/model/model.h) is on the CPU.
//
// All activations lie in memory made once for the largest batch. A pass queues work on one stream;
// it neither allocates nor blocks, so it can be recorded as a graph once it has run, but where
// ranks share the layers: there the host waits for their sums. Values and gradients belong to the
// caller. One thread drives a model.
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
    kRecompute,  // training that keeps the residual stream alone and runs each layer forward again
    kInference,  // keeps one layer's activations
  };
  std::int64_t sequences = 1, length = 1;  // of the largest batch
  Purpose purpose = Purpose::kTraining;
  bool bf16 = false;  // operands of products, branches and wide gradients are Bf16
  /// Of windows of `length`, `sequences` at a time; that of others, in evaluations, is computed by
  /// the own kernels.
  DeviceAttention attention = DeviceAttention::kOwn;
  std::int64_t logits_bytes = std::int64_t{1} << 30;  // of the chunk that exists at a time
  /// Of a rank of several that share the layers: these, borrowed, and its rows of the vocabulary;
  /// the layout is then that of its share. Null: none.
  CudaGroup* tensor = nullptr;
  int tensor_ranks = 1;  // of such a group, for who counts bytes without one
  VocabularyShare vocabulary = {};
  /// Bytes::logits that models which take turns on one stream can share, borrowed, since nothing
  /// stays there from one call to the next; null: a model has its own.
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

/// Where the gradients of loss + z-loss go, and their scale.
struct CudaGradients {
  float* flat = nullptr;  // canonical layout: added to, but for `first`
  /// The first of a step's micro-batches: gradients of the layers' matrices are stored, whatever
  /// was there, so that only CudaModel::added_ranges must hold zeros.
  bool first = false;
  const double* scale = nullptr;  // in device memory: 1 / (targets in the mean)
  /// Or none: called while the pass is queued, where the gradients of all elements from `first` on
  /// are final: for each of `final_points`.
  std::function<void(std::int64_t first)> final_from = {};
};

class CudaModel {
 public:
  virtual ~CudaModel() = default;

  struct Bytes {
    std::int64_t activations = 0, logits = 0;
    bool cudnn = false;  // which computes its attention
  };
  /// What such a model holds in device memory. Needs no device, but for attention by cuDNN that on
  /// which it will be, whose plans say how much they need. THROWS: as make_cuda_model.
  [[nodiscard]] static Bytes bytes(const ModelLayout& layout, const CudaModelOptions& options);
  /// Elements that arrays of values and of gradients must have. Products of the head take the rows
  /// of its vocabulary rounded up: of a tied head those of the next tensors, else what lies behind
  /// the layout. Logits of surplus rows are not read and their gradients are zero, so any finite
  /// values may be there; surplus gradients get zeros added.
  [[nodiscard]] static std::int64_t array_elements(const ModelLayout& layout);

  /// From where on gradients are final as a backward pass goes on, descending, the last one 0.
  [[nodiscard]] static std::vector<std::int64_t> final_points(const ModelLayout& layout);

  /// What no pass stores: all but the layers' matrices, ascending, neighbours as one.
  [[nodiscard]] static std::vector<CanonicalRange> added_ranges(const ModelLayout& layout);

  /// Adds the batch's sums to `totals`, in device memory.
  virtual void loss(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                    cuda::LossTotals* totals) = 0;
  /// The same, and gradients. REQUIRES: made for training.
  virtual void loss_and_gradients(cuda::Stream& stream, const CudaValues& values,
                                  const CudaTokens& tokens, const CudaGradients& gradients,
                                  cuda::LossTotals* totals) = 0;

  // A pipeline stage's parts of a pass, as LanguageModel's (inner/model/model.h): forward, head
  // (the stage that has it), backward, each once a micro-batch and in this order; a model holds one
  // micro-batch at a time. The layout is that of a part of a model.

  /// (rows, d_model): the residual stream before the first layer; filled by the caller where the
  /// stage has no embedding.
  [[nodiscard]] virtual float* stage_input() const = 0;
  /// The stream after the last layer of a stage without head, of the last stage_forward.
  [[nodiscard]] virtual const float* stage_output() const = 0;
  /// On entry to `stage_backward` the gradient of the stage's output, filled by the caller where
  /// the stage has no head; afterwards that of its input.
  [[nodiscard]] virtual float* stage_gradient() const = 0;
  /// keep: for a backward pass.
  virtual void stage_forward(cuda::Stream& stream, const CudaValues& values,
                             const CudaTokens& tokens, bool keep) = 0;
  /// gradients: null without a backward pass. Adds the whole vocabulary's losses to `totals`.
  virtual void stage_head(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                          const CudaGradients* gradients, cuda::LossTotals* totals) = 0;
  virtual void stage_backward(cuda::Stream& stream, const CudaValues& values,
                              const CudaTokens& tokens, const CudaGradients& gradients) = 0;
};

/// `layout` and `blas`, of the stream on which the passes will be, are borrowed. THROWS:
/// ConfigError where the device's kernels do not take the shape, and where cuDNN is asked for and
/// is not there or does not; OutOfDeviceMemory.
[[nodiscard]] std::unique_ptr<CudaModel> make_cuda_model(const ModelLayout& layout,
                                                         const CudaModelOptions& options,
                                                         cuda::Blas& blas);

}  // namespace isthmus
