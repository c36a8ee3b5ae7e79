// SPDX-License-Identifier: Apache-2.0
// Memory of a model's passes on a device. Pointers only; the same code counts and allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "inner/cuda/cuda_block.h"
#include "inner/cuda/cuda_model.h"
#include "inner/model/arena.h"

namespace isthmus {

/// The head's rows and the logits' columns, rounded up for matrix products: tensor cores are slow
/// at edges that are no multiple of 8 values, and their tiles have 64.
[[nodiscard]] inline std::int64_t padded_vocab(std::int64_t vocab) {
  return (vocab + 63) / 64 * 64;
}

/// For training `stream` holds the residual stream before each layer and after the last one. Each
/// layer has its memory, or with recomputation all layers share one. For inference there is one of
/// each.
template <typename T>
struct CudaArena {
  using Purpose = CudaModelOptions::Purpose;
  static constexpr std::int64_t kRowStep =
      128;  // tokens of a chunk of logits, if there are several chunks

  std::vector<float*> stream;  // each (rows, d_model)
  std::vector<void*> memory;   // one per layer, or one
  T* branch;                   // (rows, max(d_model, query_width)); `other` of backward passes
  T* hidden;                   // (rows, d_model): final norm, then its gradient
  float *mean, *rstd;          // of the final norm
  float* d_stream;             // (rows, d_model), backward only
  T* d_branch;                 // the same, if T is not float
  void* scratch;               // of the block
  float* kernel_scratch;       // of one kernel at a time, including cuDNN's workspace
  float* tables;
  std::int64_t chunk;          // rows of logits at a time
  std::int64_t padded;         // columns of the logits in memory: padded_vocab
  T* logits;                   // (chunk, padded)
  double* row_losses;          // (2 chunk,)
  cuda::RowShare* row_shares;  // if ranks share the vocabulary: own (chunk,), (ranks, chunk)

  CudaArena(ArenaLayout& activations, ArenaLayout& head, const ModelLayout& layout,
            const CudaBlock<T>& block, const CudaModelOptions& options,
            std::size_t cudnn_workspace) {
    const ModelShape& s = layout.shape();
    const std::int64_t rows = options.sequences * options.length;
    const bool training = options.purpose != Purpose::kInference;
    const std::int64_t streams = training ? s.layers + 1 : 1;
    const std::int64_t memories = options.purpose == Purpose::kTraining ? s.layers : 1;
    for (std::int64_t i = 0; i < streams; ++i) {
      stream.push_back(activations.take<float>(rows * s.d_model));
    }
    for (std::int64_t i = 0; i < memories; ++i) {
      memory.push_back(activations.take<std::byte>(block.memory_bytes(rows)));
    }
    branch = activations.take<T>(rows * std::max(s.d_model, s.query_width()));
    hidden = activations.take<T>(rows * s.d_model);
    mean = activations.take<float>(rows);
    rstd = activations.take<float>(rows);
    d_stream = activations.take<float>(training ? rows * s.d_model : 0);
    const bool rounds = training && !std::is_same_v<T, float>;
    d_branch = activations.take<T>(rounds ? rows * s.d_model : 0);
    scratch = activations.take<std::byte>(training ? block.scratch_bytes(rows) : 0);
    const std::size_t of_block =
        training ? block.kernel_scratch(options.sequences, options.length) : 0;
    const std::size_t of_cudnn = (cudnn_workspace + sizeof(float) - 1) / sizeof(float);
    kernel_scratch =
        activations.take<float>(static_cast<std::int64_t>(std::max(of_block, of_cudnn)));
    tables = activations.take<float>(block.table_floats());

    padded = padded_vocab(s.vocab);
    // Ranks that share the vocabulary process it in the same chunks.
    const std::int64_t widest = padded_vocab(std::max(s.vocab, options.vocabulary.largest));
    chunk = chunk_of(rows, options.logits_bytes / (widest * static_cast<std::int64_t>(sizeof(T))));
    const std::int64_t rows_of_head = layout.part().head ? chunk : 0;
    const std::int64_t sharing = options.tensor_ranks > 1 ? 1 + options.tensor_ranks : 0;
    logits = head.take<T>(rows_of_head * padded);
    row_losses = head.take<double>(2 * rows_of_head);
    row_shares = head.take<cuda::RowShare>(sharing * rows_of_head);
  }

 private:
  /// Chunks of about equal size, of at most `most` rows if `most` is larger than a step.
  static std::int64_t chunk_of(std::int64_t rows, std::int64_t most) {
    most = std::max(kRowStep, most / kRowStep * kRowStep);
    const std::int64_t chunks = (rows + most - 1) / most;
    const std::int64_t even = (rows + chunks - 1) / chunks;
    return std::min(rows, (even + kRowStep - 1) / kRowStep * kRowStep);
  }
};

}  // namespace isthmus
