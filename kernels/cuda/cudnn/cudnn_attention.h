// SPDX-License-Identifier: Apache-2.0
// Causal self-attention with grouped queries by NVIDIA's cuDNN, forward and backward, in Bf16: the
// formulas of kernels/attention.h, as attention.h computes them with kernels of our own. Three
// files have these names: cudnn_attention.cpp, over cuDNN's frontend; cudnn_attention_stub.cpp,
// chosen by CMake where a build lacks its headers; emulated/cudnn_attention.cpp for tests without a
// device.
//
// cuDNN is loaded when it is first asked for, so a program that was built with it starts where it
// is absent. All pointers are device memory. THROWS: SystemError naming cuDNN's call and its words.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/cudnn/cudnn_layout.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// Why there is no attention by cuDNN here: the build has none, or the library cannot be loaded or
/// is too old; empty where there is. Touches no device.
[[nodiscard]] std::string cudnn_missing();

/// "9.19.0"; empty where it is missing.
[[nodiscard]] std::string cudnn_version();

/// cudnn_refusal on the calling thread's device.
[[nodiscard]] std::string cudnn_refusal_here(const AttentionShape& shape);

/// What cuDNN's frontend has against either pass over the layout on a device of this compute
/// capability (90 is 9.0), before it looks for a plan; empty for nothing. Touches no device.
/// REQUIRES: cuDNN is not missing.
[[nodiscard]] std::string cudnn_objection(const AttentionLayout& layout, int compute_capability);

/// Attention over one layout: its plans are made once, with it. Driven by one thread, on the device
/// that was the thread's when it was made.
/// DETERMINISM: cuDNN's deterministic algorithm: the same bits in every run on one kind of device
/// and with one version of cuDNN. On 9.x its workspace
/// has 2 batch q_heads seq^2 bytes and more.
class CudnnAttention {
 public:
  enum class Passes { kForward, kBoth };
  /// REQUIRES: no cudnn_refusal. THROWS: SystemError also where cuDNN is missing or has no plan for
  /// the layout on this device. Blocks while it looks for plans: about a second on an H100.
  CudnnAttention(const AttentionLayout& layout, Passes passes);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Bytes that a pass is given, of the pass that needs more.
  [[nodiscard]] std::size_t workspace_bytes() const;
  /// Whether these windows are those it was made for.
  [[nodiscard]] bool takes(const AttentionShape& shape) const;

  /// As kernels::attention_forward. Queues work on the stream, also while a graph is recorded, once
  /// it has run outside of one. REQUIRES: views laid out as it was made for.
  void forward(Stream& stream, HeadsView<const kernels::Bf16> q, HeadsView<const kernels::Bf16> k,
               HeadsView<const kernels::Bf16> v, HeadsView<kernels::Bf16> out, float* lse,
               void* workspace);
  /// As kernels::attention_backward. REQUIRES: also made for both passes.
  void backward(Stream& stream, const kernels::AttentionBackward<kernels::Bf16>& a,
                void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus::cuda
